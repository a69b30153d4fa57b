"""The retry queue, dead letters, deliveries, and bulk operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from doorstep.client.call import NULL, Call, Page, Paging, delete, get, given, json_of, one, paged, post
from doorstep.client.verbs import Group, R_co, Steps, each_of, flow, until, verb
from doorstep.schemas import bulk, deliveries
from doorstep.schemas.shape import Id


class BulkOptions(TypedDict, total=False):
    """The keyword arguments of every bulk operation."""

    rate_per_second: float | None
    reason: str | None


class DeliveryQuery(Paging, total=False):
    """The filters and paging arguments for lists of deliveries."""

    endpoint_id: Id | None
    state: deliveries.DeliveryStateFilter | None
    event_type: str | None
    error_code: str | None
    since: datetime | None
    until: datetime | None


class AttemptQuery(Paging, total=False):
    """The filters and paging arguments for lists of attempts."""

    endpoint_id: Id | None
    state: deliveries.AttemptResult | None
    event_type: str | None
    error_code: str | None
    since: datetime | None
    until: datetime | None


class RetryQueueQuery(Paging, total=False):
    """The filters and paging arguments for lists of the retry queue."""

    status: deliveries.QueueStatus | None
    event_type: str | None
    endpoint_id: Id | None
    older_than_seconds: float | None


class DeadLetterQuery(Paging, total=False):
    """The filters and paging arguments for lists of dead letters."""

    status: deliveries.DeadStatus | None
    event_type: str | None
    endpoint_id: Id | None
    cause: str | None
    since: datetime | None
    until: datetime | None
    died_from: datetime | None
    """An older name of `since`."""
    died_before: datetime | None
    """An older name of `until`."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of deliveries, made with `of`, `where` or `everything`. An empty selection never means everything."""

    body: Mapping[str, object]

    @classmethod
    def of(cls, delivery_ids: Iterable[Id]) -> Selection:
        """These deliveries, up to 1,000."""
        return cls({"delivery_ids": list(delivery_ids)})

    @classmethod
    def where(cls, **filters: Any) -> Selection:
        """All deliveries that match the filters. The filters are those of the queue's `page` method."""
        return cls({"filter": given(filters)})

    @classmethod
    def everything(cls) -> Selection:
        """All deliveries of the queue."""
        return cls({"all": True})


class RetryQueue(Group[R_co]):
    """`client.retry_queue`: deliveries that failed and will be retried."""

    @verb
    def page(self, **filters: Unpack[RetryQueueQuery]) -> Call[Page[deliveries.QueuedDelivery]]:
        """One page of the retry queue, soonest retry first."""
        return get(paged(deliveries.RetryQueuePage), "/v1/retry-queue", query=filters)

    each = each_of(page)

    @verb
    def retry(self, delivery_id: Id, *, reason: str | None = None) -> Call[deliveries.Delivery]:
        """Retry a delivery now. The attempt counts like a scheduled retry; if it fails, the next retry is scheduled as
        usual."""
        return post(
            one(deliveries.Delivery), "/v1/retry-queue/{delivery_id}/retry", delivery_id, body={"reason": reason}
        )

    @verb
    def skip(self, delivery_id: Id, *, reason: str | None = None) -> Call[deliveries.Delivery]:
        """Stop retrying a delivery and move it to the dead letters."""
        return post(
            one(deliveries.Delivery), "/v1/retry-queue/{delivery_id}/skip", delivery_id, body={"reason": reason}
        )

    @verb
    def bulk_retry(self, selection: Selection, **options: Unpack[BulkOptions]) -> Call[bulk.Bulk]:
        """Retry the selected deliveries, without a rate limit or at `rate_per_second`."""
        return _start("/v1/retry-queue/bulk-retry", selection, **options)

    @verb
    def bulk_skip(self, selection: Selection, **options: Unpack[BulkOptions]) -> Call[bulk.Bulk]:
        """Move the selected deliveries to the dead letters."""
        return _start("/v1/retry-queue/bulk-skip", selection, **options)

    @verb
    def preview(self, selection: Selection) -> Call[bulk.Preview]:
        """Count the selected deliveries, in total and by endpoint, without changing anything."""
        return _preview("/v1/retry-queue/bulk-retry", selection)


class DeadLetters(Group[R_co]):
    """`client.dead_letters`: deliveries that failed permanently."""

    @verb
    def page(self, **filters: Unpack[DeadLetterQuery]) -> Call[Page[deliveries.DeadLetter]]:
        """One page of dead letters, newest first."""
        return get(paged(deliveries.DeadLetterPage), "/v1/dead-letters", query=filters)

    each = each_of(page)

    @verb
    def groups(self, **filters: Unpack[DeadLetterQuery]) -> Call[Page[deliveries.CauseGroup]]:
        """One page of dead letters grouped by cause."""
        return get(paged(deliveries.CauseGroupPage), "/v1/dead-letters/groups", query=filters)

    each_group = each_of(groups)

    @verb
    def retry(self, delivery_id: Id, *, reason: str | None = None) -> Call[deliveries.Delivery]:
        """Retry a dead letter in five seconds, with its retry count reset."""
        return post(
            one(deliveries.Delivery), "/v1/dead-letters/{delivery_id}/retry", delivery_id, body={"reason": reason}
        )

    @verb
    def edit_and_retry(self, delivery_id: Id, payload: Any, *, reason: str | None = None) -> Call[deliveries.Delivery]:
        """Retry a dead letter with another payload. A payload given as bytes is delivered unchanged."""
        body = {"payload": NULL if payload is None else json_of(payload), "reason": reason}
        return post(one(deliveries.Delivery), "/v1/dead-letters/{delivery_id}/retry", delivery_id, body=body)

    @verb
    def resolve(self, delivery_id: Id, *, reason: str | None = None) -> Call[deliveries.Delivery]:
        """Mark a dead letter as resolved: it no longer needs to be delivered."""
        return post(
            one(deliveries.Delivery), "/v1/dead-letters/{delivery_id}/resolve", delivery_id, body={"reason": reason}
        )

    @verb
    def delete(self, delivery_id: Id) -> Call[None]:
        """Delete a dead letter. Its attempt log is kept."""
        return delete("/v1/dead-letters/{delivery_id}", delivery_id)

    @verb
    def bulk_retry(
        self, selection: Selection, *, canary: bool | None = None, **options: Unpack[BulkOptions]
    ) -> Call[bulk.Bulk]:
        """Retry dead letters. With `canary`, one dead letter of each cause is retried first. The others with that cause
        are retried only if the first one succeeds."""
        return _start("/v1/dead-letters/bulk-retry", selection, canary=canary, **options)

    @verb
    def bulk_resolve(self, selection: Selection, **options: Unpack[BulkOptions]) -> Call[bulk.Bulk]:
        """Mark dead letters as resolved: they no longer need to be delivered."""
        return _start("/v1/dead-letters/bulk-resolve", selection, **options)

    @verb
    def bulk_delete(self, selection: Selection, **options: Unpack[BulkOptions]) -> Call[bulk.Bulk]:
        """Delete dead letters. Their attempt logs are kept."""
        return _start("/v1/dead-letters/bulk-delete", selection, **options)

    @verb
    def preview(self, selection: Selection) -> Call[bulk.Preview]:
        """Count the selected deliveries, in total and by endpoint, without changing anything."""
        return _preview("/v1/dead-letters/bulk-retry", selection)


class Deliveries(Group[R_co]):
    """`client.deliveries`: a delivery is one event to be delivered to one endpoint."""

    @verb
    def page(self, **filters: Unpack[DeliveryQuery]) -> Call[Page[deliveries.QueuedDelivery]]:
        """One page of deliveries in any state, newest first."""
        return get(paged(deliveries.DeliveryPage), "/v1/deliveries", query=filters)

    each = each_of(page)

    @verb
    def read(self, delivery_id: Id) -> Call[deliveries.Delivery]:
        """A delivery with its state."""
        return get(one(deliveries.Delivery), "/v1/deliveries/{delivery_id}", delivery_id)

    @verb
    def payload(self, delivery_id: Id) -> Call[bytes]:
        """The exact bytes of the payload: the event's payload, or the payload that an operator edited."""
        return get(bytes, "/v1/deliveries/{delivery_id}/payload", delivery_id)

    @verb
    def attempts(self, delivery_id: Id) -> Call[Page[deliveries.Attempt]]:
        """The attempt log of a delivery, in order."""
        return get(paged(deliveries.AttemptPage), "/v1/deliveries/{delivery_id}/attempts", delivery_id)

    @verb
    def history(self, delivery_id: Id) -> Call[Page[deliveries.Transition]]:
        """The history of a delivery: all transitions, in order."""
        return get(paged(deliveries.HistoryPage), "/v1/deliveries/{delivery_id}/history", delivery_id)


class Attempts(Group[R_co]):
    """`client.attempts`: the attempts of all deliveries."""

    @verb
    def page(self, **filters: Unpack[AttemptQuery]) -> Call[Page[deliveries.AttemptItem]]:
        """One page of attempts, newest first, without their requests and responses."""
        return get(paged(deliveries.AttemptListPage), "/v1/attempts", query=filters)

    each = each_of(page)


def _start(route: str, selection: Selection, **options: object) -> Call[bulk.Bulk]:
    return post(one(bulk.Bulk), route, body={**selection.body, **options})


def _preview(route: str, selection: Selection) -> Call[bulk.Preview]:
    return post(one(bulk.Preview), route, body={**selection.body, "preview": True})


class BulkOperations(Group[R_co]):
    """`client.bulk`. To start a bulk operation, use a method of `retry_queue`, `dead_letters` or `endpoints`."""

    @verb
    def page(self, **paging: Unpack[Paging]) -> Call[Page[bulk.Bulk]]:
        """One page of bulk operations, newest first."""
        return get(paged(bulk.BulkPage), "/v1/bulk", query=paging)

    each = each_of(page)

    @verb
    def read(self, bulk_id: Id) -> Call[bulk.Bulk]:
        """A bulk operation with its progress."""
        return _read(bulk_id)

    @flow
    def wait(
        self, bulk_id: Id, timeout: float = 60.0, *, on_progress: Callable[[bulk.Bulk], object] = lambda _: None
    ) -> Steps[bulk.Bulk]:
        """Wait until a bulk operation is finished or cancelled. Raises TimedOut after `timeout` seconds.

        Each poll calls `on_progress`.
        """

        def ended(seen: bulk.Bulk) -> bool:
            on_progress(seen)
            return seen.ended

        return until(lambda: self._perform(_read(bulk_id)), ended, timeout, f"bulk operation {bulk_id}")

    @verb
    def pause(self, bulk_id: Id) -> Call[bulk.Bulk]:
        """Pause a bulk operation."""
        return post(one(bulk.Bulk), "/v1/bulk/{bulk_id}/pause", bulk_id)

    @verb
    def resume(self, bulk_id: Id) -> Call[bulk.Bulk]:
        """Resume a paused bulk operation."""
        return post(one(bulk.Bulk), "/v1/bulk/{bulk_id}/resume", bulk_id)

    @verb
    def cancel(self, bulk_id: Id) -> Call[bulk.Bulk]:
        """Stop a bulk operation. Actions already taken are not undone."""
        return post(one(bulk.Bulk), "/v1/bulk/{bulk_id}/cancel", bulk_id)

    @verb
    def failures(self, bulk_id: Id, **paging: Unpack[Paging]) -> Call[Page[deliveries.QueuedDelivery]]:
        """One page of the deliveries that failed again after a bulk retry."""
        return get(paged(deliveries.FailurePage), "/v1/bulk/{bulk_id}/failures", bulk_id, query=paging)

    each_failure = each_of(failures)


def _read(bulk_id: Id) -> Call[bulk.Bulk]:
    return get(one(bulk.Bulk), "/v1/bulk/{bulk_id}", bulk_id)
