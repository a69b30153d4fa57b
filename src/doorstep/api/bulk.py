"""Bulk operations: started on the retry queue, the dead letters or an endpoint; watched and steered here."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from doorstep.api.answers import all_of, answer, position, shape
from doorstep.api.bodies import instant
from doorstep.api.deliveries import hexadecimal, letters_from, queue_from, queued_shown
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.clock import Clock
from doorstep.errors import InvalidInput
from doorstep.model import bulk as model
from doorstep.model.bulk import BulkKind, Selection
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES
from doorstep.model.event import EventStatus
from doorstep.model.listing import DeadLetterFilter, EventFilter, RetryQueueFilter
from doorstep.model.org import ApiKey
from doorstep.operations import bulk as path
from doorstep.schemas.bulk import (
    Bulk,
    BulkIn,
    BulkLettersIn,
    BulkPage,
    BulkQueueIn,
    BulkRetryIn,
    Canary,
    EndpointCount,
    Preview,
    ReplayIn,
)
from doorstep.schemas.deliveries import FailurePage
from doorstep.schemas.shape import ListQuery

EXPLICIT = 'name what it is about: "delivery_ids", a "filter" with at least one field, or "all": true; exactly one'
_STARTED: dict[str, Any] = {"status": 202, "answers": Bulk, "more": {200: Preview}}


def bulk_routes(doorstep: Doorstep) -> Routes:
    """Watching and steering."""
    routes = Routes("/v1/bulk", "bulk")

    @routes.get()
    async def list_bulk(asked: ListQuery, caller: Caller) -> BulkPage:
        """Bulk operations, newest first."""
        page = await doorstep.components.store.list_bulk(caller.org_id, asked.cursor, asked.limit)
        return BulkPage(all_of(bulk_shown, page.items), position(page, asked.limit))

    @routes.get("/{bulk_id}")
    async def read_bulk(bulk_id: UUID, caller: Caller) -> Bulk:
        """How far a bulk operation has come."""
        return bulk_shown(await doorstep.components.store.bulk(caller.org_id, bulk_id))

    @routes.get("/{bulk_id}/failures")
    async def list_failures(bulk_id: UUID, asked: ListQuery, caller: Caller) -> FailurePage:
        """What a bulk retry retried in vain."""
        await doorstep.components.store.bulk(caller.org_id, bulk_id)
        page = await doorstep.components.store.bulk_failures(caller.org_id, bulk_id, asked.cursor, asked.limit)
        described = await doorstep.components.reader.described(
            caller.org_id, [doorstep.components.reader.seen(one) for one in page.items]
        )
        return FailurePage(all_of(queued_shown, described), position(page, asked.limit))

    @routes.post("/{bulk_id}/pause")
    async def pause_bulk(bulk_id: UUID, caller: Caller) -> Bulk:
        """Take no more until it is resumed; what is under way goes on."""
        return bulk_shown(await doorstep.components.bulk.pause(caller.org_id, bulk_id, caller.prefix))

    @routes.post("/{bulk_id}/resume")
    async def resume_bulk(bulk_id: UUID, caller: Caller) -> Bulk:
        """Go on where it was paused."""
        return bulk_shown(await doorstep.components.bulk.resume(caller.org_id, bulk_id, caller.prefix))

    @routes.post("/{bulk_id}/cancel")
    async def cancel_bulk(bulk_id: UUID, caller: Caller) -> Bulk:
        """Take no more, ever. What was done stays done."""
        return bulk_shown(await doorstep.components.bulk.cancel(caller.org_id, bulk_id, caller.prefix))

    return routes


def bulk_start_routes(doorstep: Doorstep) -> Routes:
    """Starting."""
    routes = Routes("/v1")

    @routes.post("/retry-queue/bulk-retry", tags=["retry queue"], **_STARTED)
    async def bulk_retry_queue(body: BulkQueueIn, caller: Caller) -> Response:
        """Retry many waiting deliveries now, in the background."""
        return await begin(BulkKind.RETRY, body, queue_selection(body, doorstep.clock), caller)

    @routes.post("/retry-queue/bulk-skip", tags=["retry queue"], **_STARTED)
    async def bulk_skip(body: BulkQueueIn, caller: Caller) -> Response:
        """Move many waiting deliveries to the dead letters, in the background."""
        return await begin(BulkKind.SKIP, body, queue_selection(body, doorstep.clock), caller)

    @routes.post("/dead-letters/bulk-retry", tags=["dead letters"], **_STARTED)
    async def bulk_retry_letters(body: BulkRetryIn, caller: Caller) -> Response:
        """Retry many dead letters, in the background; with `canary`, one of each cause first."""
        return await begin(BulkKind.RETRY, body, letter_selection(body), caller, canary=body.canary)

    @routes.post("/dead-letters/bulk-resolve", tags=["dead letters"], **_STARTED)
    async def bulk_resolve(body: BulkLettersIn, caller: Caller) -> Response:
        """Say of many dead letters that they need no delivery."""
        return await begin(BulkKind.RESOLVE, body, letter_selection(body), caller)

    @routes.post("/dead-letters/bulk-delete", tags=["dead letters"], **_STARTED)
    async def bulk_delete(body: BulkLettersIn, caller: Caller) -> Response:
        """Take many dead letters off every list. Their attempt logs stay."""
        return await begin(BulkKind.DELETE, body, letter_selection(body), caller)

    @routes.post("/endpoints/{endpoint_id}/replay", tags=["endpoints"], **_STARTED)
    async def replay_to_endpoint(endpoint_id: UUID, body: ReplayIn, caller: Caller) -> Response:
        """Send the events of a time range to this endpoint again, each as a new event, oldest first."""
        await doorstep.components.reader.endpoint(caller.org_id, endpoint_id)
        return await begin(BulkKind.REPLAY, body, replay_selection(body), caller, endpoint_id=endpoint_id)

    async def begin(
        kind: BulkKind, body: BulkIn | ReplayIn, selection: Selection, caller: ApiKey, **more: Any
    ) -> Response:
        if body.preview:
            return answer(await previewed(selection, caller, more.get("endpoint_id")))
        bulk = await doorstep.components.bulk.start(
            kind,
            caller.org_id,
            selection,
            caller.prefix,
            reason=body.reason,
            rate_per_second=body.rate_per_second,
            **more,
        )
        return answer(bulk_shown(bulk), 202)

    async def previewed(selection: Selection, caller: ApiKey, replay_to: UUID | None) -> Preview:
        preview = await doorstep.components.bulk.preview(caller.org_id, selection, replay_to)
        names = await doorstep.components.reader.endpoint_names(caller.org_id, preview.by_endpoint)
        return _preview_shown(preview, names)

    return routes


# -- what is selected --------------------------------------------------------------------------------------------


def queue_selection(body: BulkQueueIn, clock: Clock) -> Selection:
    chosen = _chosen(body, body.filter)
    if chosen is not None:
        return Selection(delivery_ids=chosen, states=WAITING_STATES)
    return Selection(queue=RetryQueueFilter() if body.filter is None else queue_from(body.filter, clock))


def letter_selection(body: BulkLettersIn) -> Selection:
    chosen = _chosen(body, body.filter)
    if chosen is not None:
        return Selection(delivery_ids=chosen, states=DEAD_STATES)
    return Selection(letters=DeadLetterFilter() if body.filter is None else letters_from(body.filter, "filter."))


def replay_selection(body: ReplayIn) -> Selection:
    since, until = instant(body.created_from, "created_from"), instant(body.created_before, "created_before")
    if until <= since:
        raise InvalidInput("created_before", "must be later than created_from")
    status = None if body.status is None else EventStatus(body.status)
    return Selection(
        events=EventFilter(status=status, event_type=body.event_type, created_from=since, created_before=until)
    )


def _chosen(body: BulkIn, chosen: msgspec.Struct | None) -> tuple[UUID, ...] | None:
    """The ids, where there are ids. Emptiness is dangerous: nobody retries everything by leaving something out."""
    if body.all is False:
        raise InvalidInput("all", "must be true")
    ways = (body.delivery_ids is not None, _says_something(chosen), body.all is not None)
    if sum(ways) != 1:
        raise InvalidInput("body", EXPLICIT)
    return body.delivery_ids


def _says_something(chosen: msgspec.Struct | None) -> bool:
    return chosen is not None and any(getattr(chosen, name) not in (None, UNSET) for name in chosen.__struct_fields__)


# -- shapes ------------------------------------------------------------------------------------------------------


def bulk_shown(bulk: model.Bulk) -> Bulk:
    canaries = None if bulk.canaries is None else all_of(_canary_shown, bulk.canaries)
    return shape(Bulk, bulk, total_is_floor=not bulk.total_exact, canaries=canaries)


def _canary_shown(canary: model.Canary) -> Canary:
    return Canary(hexadecimal(canary.cause), canary.delivery_id, canary.succeeded)


def _preview_shown(preview: path.Preview, names: dict[UUID, str]) -> Preview:
    counts = tuple(
        EndpointCount(endpoint_id, names[endpoint_id], count) for endpoint_id, count in preview.by_endpoint.items()
    )
    return Preview(preview.count.value, not preview.count.exact, counts)
