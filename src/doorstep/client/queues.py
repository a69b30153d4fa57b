"""The retry queue, the dead letters, the deliveries in them, and bulk operations on many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from doorstep.client.call import NULL, Call, Page, delete, get, given, json_of, one, paged, post, until
from doorstep.client.steps import Steps
from doorstep.client.verbs import Group, R_co, each_of, flow, verb
from doorstep.schemas.bulk import Bulk, BulkPage, Preview
from doorstep.schemas.deliveries import (
    Attempt,
    AttemptPage,
    CauseGroup,
    CauseGroupPage,
    DeadLetter,
    DeadLetterPage,
    Delivery,
    FailurePage,
    HistoryPage,
    LetterFilters,
    QueuedDelivery,
    QueueStatus,
    RetryQueuePage,
    Transition,
)
from doorstep.schemas.shape import Id


@dataclass(frozen=True, slots=True)
class Selection:
    """Made by `of`, `where` or `everything`: nothing is ever selected by leaving something out."""

    body: Mapping[str, object]

    @classmethod
    def of(cls, delivery_ids: Iterable[Id]) -> Selection:
        """These deliveries, up to 1,000."""
        return cls({"delivery_ids": [str(delivery_id) for delivery_id in delivery_ids]})

    @classmethod
    def where(cls, **filters: Any) -> Selection:
        """All that match, by the names that `page` of the same queue knows."""
        return cls({"filter": {name: _plain(value) for name, value in given(filters).items()}})

    @classmethod
    def everything(cls) -> Selection:
        """All of them."""
        return cls({"all": True})


def _plain(value: Any) -> object:
    return value if isinstance(value, str | int | float | bool) else _text(value)


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class RetryQueue(Group[R_co]):
    """`client.retry_queue`: what failed at least once and will be tried again."""

    @verb
    def page(
        self,
        *,
        status: QueueStatus | None = None,
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
        return get(paged(RetryQueuePage), "/v1/retry-queue", query=query)

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
        return get(paged(DeadLetterPage), "/v1/dead-letters", query=query)

    each = each_of(page)

    @verb
    def groups(
        self, *, limit: int | None = None, cursor: str | None = None, **filters: Unpack[LetterFilters]
    ) -> Call[Page[CauseGroup]]:
        """One page of their causes."""
        query = {**filters, "limit": limit, "cursor": cursor}
        return get(paged(CauseGroupPage), "/v1/dead-letters/groups", query=query)

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
        return get(paged(AttemptPage), "/v1/deliveries/{delivery_id}/attempts", delivery_id)

    @verb
    def history(self, delivery_id: Id) -> Call[Page[Transition]]:
        """Its life, one line a transition."""
        return get(paged(HistoryPage), "/v1/deliveries/{delivery_id}/history", delivery_id)


def _started(route: str, selection: Selection, **options: object) -> Call[Bulk]:
    return post(one(Bulk), route, body={**selection.body, **options})


def _previewed(route: str, selection: Selection) -> Call[Preview]:
    return post(one(Preview), route, body={**selection.body, "preview": True})


class BulkOperations(Group[R_co]):
    """`client.bulk`. They are begun by the queue or the endpoint that they are about."""

    @verb
    def page(self, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[Bulk]]:
        """One page of them, newest first."""
        return get(paged(BulkPage), "/v1/bulk", query={"limit": limit, "cursor": cursor})

    each = each_of(page)

    @verb
    def read(self, bulk_id: Id) -> Call[Bulk]:
        """How far it is."""
        return _read(bulk_id)

    @flow
    def wait(
        self, bulk_id: Id, timeout: float = 60.0, *, on_progress: Callable[[Bulk], object] = lambda _: None
    ) -> Steps[Bulk]:
        """Wait until it is finished or cancelled; `on_progress` is told of every look. TimedOut after `timeout` s."""

        def ended(seen: Bulk) -> bool:
            on_progress(seen)
            return seen.ended

        return until(lambda: self._perform(_read(bulk_id)), ended, timeout, f"bulk operation {bulk_id}")

    @verb
    def pause(self, bulk_id: Id) -> Call[Bulk]:
        """Hold it where it is."""
        return post(one(Bulk), "/v1/bulk/{bulk_id}/pause", bulk_id)

    @verb
    def resume(self, bulk_id: Id) -> Call[Bulk]:
        """Let it go on."""
        return post(one(Bulk), "/v1/bulk/{bulk_id}/resume", bulk_id)

    @verb
    def cancel(self, bulk_id: Id) -> Call[Bulk]:
        """End it here; what it has done stays done."""
        return post(one(Bulk), "/v1/bulk/{bulk_id}/cancel", bulk_id)

    @verb
    def failures(
        self, bulk_id: Id, *, limit: int | None = None, cursor: str | None = None
    ) -> Call[Page[QueuedDelivery]]:
        """One page of the deliveries that failed again."""
        query = {"limit": limit, "cursor": cursor}
        return get(paged(FailurePage), "/v1/bulk/{bulk_id}/failures", bulk_id, query=query)

    each_failure = each_of(failures)


def _read(bulk_id: Id) -> Call[Bulk]:
    return get(one(Bulk), "/v1/bulk/{bulk_id}", bulk_id)
