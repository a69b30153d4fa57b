"""The two queues that operators work on, and the deliveries in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

from doorstep.client.answers.bulk import Bulk, Preview
from doorstep.client.answers.deliveries import (
    Attempt,
    CauseGroup,
    DeadLetter,
    Delivery,
    QueuedDelivery,
    Transition,
)
from doorstep.client.call import NULL, Call, Id, Page, delete, get, json_of, one, paged, post
from doorstep.client.selection import Selection
from doorstep.client.verbs import Group, R_co, each_of, verb


class LetterFilters(TypedDict, total=False):
    """Which dead letters."""

    status: Literal["dead", "archived"] | None
    event_type: str | None
    endpoint_id: Id | None
    cause: str | None
    died_from: datetime | None
    died_before: datetime | None


class RetryQueue(Group[R_co]):
    """`client.retry_queue`: what failed at least once and will be tried again."""

    @verb
    def page(
        self,
        *,
        status: Literal["pending", "in_progress"] | None = None,
        event_type: str | None = None,
        endpoint_id: Id | None = None,
        older_than_seconds: float | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[QueuedDelivery]]:
        """One page, the next retry first."""
        query = {
            "status": status,
            "event_type": event_type,
            "endpoint_id": endpoint_id,
            "older_than_seconds": older_than_seconds,
            "limit": limit,
            "cursor": cursor,
        }
        return get(paged("deliveries", QueuedDelivery), "/v1/retry-queue", query=query)

    each = each_of(page)

    @verb
    def retry(self, delivery_id: Id, *, reason: str | None = None) -> Call[Delivery]:
        """Try it now. A new failure counts, and the next time is computed anew."""
        return post(one(Delivery), "/v1/retry-queue/{delivery_id}/retry", delivery_id, body={"reason": reason})

    @verb
    def skip(self, delivery_id: Id, *, reason: str | None = None) -> Call[Delivery]:
        """Give it up: it moves to the dead letters."""
        return post(one(Delivery), "/v1/retry-queue/{delivery_id}/skip", delivery_id, body={"reason": reason})

    @verb
    def bulk_retry(
        self, selection: Selection, *, rate_per_second: float | None = None, reason: str | None = None
    ) -> Call[Bulk]:
        """Try all of them now, or so many a second."""
        return _started("/v1/retry-queue/bulk-retry", selection, rate_per_second=rate_per_second, reason=reason)

    @verb
    def bulk_skip(
        self, selection: Selection, *, rate_per_second: float | None = None, reason: str | None = None
    ) -> Call[Bulk]:
        """Give all of them up."""
        return _started("/v1/retry-queue/bulk-skip", selection, rate_per_second=rate_per_second, reason=reason)

    @verb
    def preview(self, selection: Selection) -> Call[Preview]:
        """How many are selected, and for which endpoints; nothing is done."""
        return _previewed("/v1/retry-queue/bulk-retry", selection)


class DeadLetters(Group[R_co]):
    """`client.dead_letters`: what the machine has given up on."""

    @verb
    def page(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[LetterFilters]
    ) -> Call[Page[DeadLetter]]:
        """One page, newest first."""
        query = {**filters, "limit": limit, "cursor": cursor}
        return get(paged("dead_letters", DeadLetter), "/v1/dead-letters", query=query)

    each = each_of(page)

    @verb
    def groups(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[LetterFilters]
    ) -> Call[Page[CauseGroup]]:
        """One page of their causes."""
        query = {**filters, "limit": limit, "cursor": cursor}
        return get(paged("groups", CauseGroup), "/v1/dead-letters/groups", query=query)

    each_group = each_of(groups)

    @verb
    def retry(self, delivery_id: Id, *, reason: str | None = None) -> Call[Delivery]:
        """Try it again, with all its retries, in five seconds."""
        return post(one(Delivery), "/v1/dead-letters/{delivery_id}/retry", delivery_id, body={"reason": reason})

    @verb
    def edit_and_retry(self, delivery_id: Id, payload: Any, *, reason: str | None = None) -> Call[Delivery]:
        """Try it again with another payload. One given as bytes is delivered exactly so."""
        body = {"payload": NULL if payload is None else json_of(payload), "reason": reason}
        return post(one(Delivery), "/v1/dead-letters/{delivery_id}/retry", delivery_id, body=body)

    @verb
    def resolve(self, delivery_id: Id, *, reason: str | None = None) -> Call[Delivery]:
        """Say that it needs no delivery."""
        return post(one(Delivery), "/v1/dead-letters/{delivery_id}/resolve", delivery_id, body={"reason": reason})

    @verb
    def delete(self, delivery_id: Id) -> Call[None]:
        """Delete it; its attempt log stays."""
        return delete("/v1/dead-letters/{delivery_id}", delivery_id)

    @verb
    def bulk_retry(
        self,
        selection: Selection,
        *,
        rate_per_second: float | None = None,
        canary: bool | None = None,
        reason: str | None = None,
    ) -> Call[Bulk]:
        """Try all of them again. With `canary` one of each cause goes first, the others only if it succeeds."""
        route = "/v1/dead-letters/bulk-retry"
        return _started(route, selection, rate_per_second=rate_per_second, canary=canary, reason=reason)

    @verb
    def bulk_resolve(
        self, selection: Selection, *, rate_per_second: float | None = None, reason: str | None = None
    ) -> Call[Bulk]:
        """Say that they need no delivery."""
        return _started("/v1/dead-letters/bulk-resolve", selection, rate_per_second=rate_per_second, reason=reason)

    @verb
    def bulk_delete(
        self, selection: Selection, *, rate_per_second: float | None = None, reason: str | None = None
    ) -> Call[Bulk]:
        """Delete them; their attempt logs stay."""
        return _started("/v1/dead-letters/bulk-delete", selection, rate_per_second=rate_per_second, reason=reason)

    @verb
    def preview(self, selection: Selection) -> Call[Preview]:
        """How many are selected, and for which endpoints; nothing is done."""
        return _previewed("/v1/dead-letters/bulk-retry", selection)


class Deliveries(Group[R_co]):
    """`client.deliveries`: one event owed to one endpoint, and all that happened to it."""

    @verb
    def read(self, delivery_id: Id) -> Call[Delivery]:
        """A delivery as it stands."""
        return get(one(Delivery), "/v1/deliveries/{delivery_id}", delivery_id)

    @verb
    def payload(self, delivery_id: Id) -> Call[bytes]:
        """What is delivered, byte for byte: the event's payload, or the one that an operator gave instead."""
        return get(bytes, "/v1/deliveries/{delivery_id}/payload", delivery_id)

    @verb
    def attempts(self, delivery_id: Id) -> Call[Page[Attempt]]:
        """Its attempt log, in order."""
        return get(paged("attempts", Attempt), "/v1/deliveries/{delivery_id}/attempts", delivery_id)

    @verb
    def history(self, delivery_id: Id) -> Call[Page[Transition]]:
        """Its life, one line a transition."""
        return get(paged("history", Transition), "/v1/deliveries/{delivery_id}/history", delivery_id)


def _started(route: str, selection: Selection, **options: object) -> Call[Bulk]:
    return post(one(Bulk), route, body={**selection.body, **options})


def _previewed(route: str, selection: Selection) -> Call[Preview]:
    return post(one(Preview), route, body={**selection.body, "preview": True})
