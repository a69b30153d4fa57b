"""Bulk operations on the retry queue, the dead letters or an endpoint: start, watch, pause, resume, cancel."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from doorstep.api.codec import all_of, answer, name_of, position, span_of
from doorstep.api.deliveries import hexadecimal, letters_from, queue_from, queued_shown
from doorstep.api.routing import ApiRequest, Routes
from doorstep.clock import Clock
from doorstep.errors import InvalidInput
from doorstep.model import bulk as model
from doorstep.model.bulk import BulkKind, Selection
from doorstep.model.delivery import DEAD_STATES, WAITING_STATES
from doorstep.model.event import EventStatus
from doorstep.model.listing import DeadLetterFilter, EventFilter, RetryQueueFilter
from doorstep.model.org import Permission
from doorstep.operations.shapes import shape
from doorstep.schemas import bulk as schemas
from doorstep.schemas.deliveries import FailurePage
from doorstep.schemas.shape import ListQuery

_STARTED: dict[str, Any] = {"status": 202, "answers": schemas.Bulk, "more": {200: schemas.Preview}}

routes = Routes("/v1")


@routes.get("/bulk", Permission.LOOK, tags=["bulk"])
async def list_bulk(query: ListQuery, request: ApiRequest) -> schemas.BulkPage:
    """Bulk operations, newest first."""
    page = await request.components.bulk.list(request.org_id, query.cursor, query.limit)
    shown = tuple([await bulk_shown(one, request) for one in page.items])
    return schemas.BulkPage(shown, pagination=position(page, query.limit))


@routes.get("/bulk/{bulk_id}", Permission.LOOK, tags=["bulk"])
async def read_bulk(bulk_id: UUID, request: ApiRequest) -> schemas.Bulk:
    """A bulk operation and its progress."""
    return await bulk_shown(await request.components.bulk.get(request.org_id, bulk_id), request)


@routes.get("/bulk/{bulk_id}/failures", Permission.LOOK, tags=["bulk"])
async def list_failures(bulk_id: UUID, query: ListQuery, request: ApiRequest) -> FailurePage:
    """The deliveries of a bulk retry that failed again."""
    page = await request.reader.bulk_failures(request.org_id, bulk_id, query.cursor, query.limit)
    return FailurePage(all_of(queued_shown, page.items), pagination=position(page, query.limit))


@routes.post("/bulk/{bulk_id}/pause", Permission.ACT, conflict=True, tags=["bulk"])
async def pause_bulk(bulk_id: UUID, request: ApiRequest) -> schemas.Bulk:
    """Pause a bulk operation. Deliveries in progress continue."""
    return await bulk_shown(await request.components.bulk.pause(request.org_id, bulk_id, request.actor), request)


@routes.post("/bulk/{bulk_id}/resume", Permission.ACT, conflict=True, tags=["bulk"])
async def resume_bulk(bulk_id: UUID, request: ApiRequest) -> schemas.Bulk:
    """Resume a paused bulk operation."""
    return await bulk_shown(await request.components.bulk.resume(request.org_id, bulk_id, request.actor), request)


@routes.post("/bulk/{bulk_id}/cancel", Permission.ACT, conflict=True, tags=["bulk"])
async def cancel_bulk(bulk_id: UUID, request: ApiRequest) -> schemas.Bulk:
    """Cancel a bulk operation. Actions already taken are not undone."""
    return await bulk_shown(await request.components.bulk.cancel(request.org_id, bulk_id, request.actor), request)


@routes.post("/retry-queue/bulk-retry", Permission.ACT, tags=["retry queue"], **_STARTED)
async def bulk_retry_queue(body: schemas.BulkQueueIn, request: ApiRequest) -> Response:
    """Retry many waiting deliveries now, in the background."""
    return await _begin(BulkKind.RETRY, body, queue_selection(body, request.doorstep.clock), request)


@routes.post("/retry-queue/bulk-skip", Permission.ACT, tags=["retry queue"], **_STARTED)
async def bulk_skip(body: schemas.BulkQueueIn, request: ApiRequest) -> Response:
    """Move many waiting deliveries to the dead letters, in the background."""
    return await _begin(BulkKind.SKIP, body, queue_selection(body, request.doorstep.clock), request)


@routes.post("/dead-letters/bulk-retry", Permission.ACT, tags=["dead letters"], **_STARTED)
async def bulk_retry_letters(body: schemas.BulkRetryIn, request: ApiRequest) -> Response:
    """Retry many dead letters, in the background. With `canary`, one dead letter of each cause is retried first."""
    return await _begin(BulkKind.RETRY, body, letter_selection(body), request, canary=body.canary)


@routes.post("/dead-letters/bulk-resolve", Permission.ACT, tags=["dead letters"], **_STARTED)
async def bulk_resolve(body: schemas.BulkLettersIn, request: ApiRequest) -> Response:
    """Mark many dead letters as resolved, in the background."""
    return await _begin(BulkKind.RESOLVE, body, letter_selection(body), request)


@routes.post("/dead-letters/bulk-delete", Permission.ACT, tags=["dead letters"], **_STARTED)
async def bulk_delete(body: schemas.BulkLettersIn, request: ApiRequest) -> Response:
    """Remove many dead letters from every list, in the background. Their attempt logs are kept."""
    return await _begin(BulkKind.DELETE, body, letter_selection(body), request)


@routes.post("/endpoints/{endpoint_id}/replay", Permission.ACT, conflict=True, tags=["endpoints"], **_STARTED)
async def replay_to_endpoint(endpoint_id: UUID, body: schemas.ReplayIn, request: ApiRequest) -> Response:
    """Send the events of a time range to this endpoint again, each as a new event, oldest first."""
    await request.reader.endpoint(request.org_id, endpoint_id)
    return await _begin(BulkKind.REPLAY, body, replay_selection(body), request, endpoint_id=endpoint_id)


async def _begin(
    kind: BulkKind, body: schemas.BulkIn | schemas.ReplayIn, selection: Selection, request: ApiRequest, **more: Any
) -> Response:
    if body.preview:
        return answer(await _previewed(selection, request, more.get("endpoint_id")))
    bulk = await request.components.bulk.start(
        kind,
        request.org_id,
        selection,
        request.actor,
        reason=body.reason,
        rate_per_second=body.rate_per_second,
        **more,
    )
    return answer(await bulk_shown(bulk, request), 202)


async def _previewed(selection: Selection, request: ApiRequest, replay_to: UUID | None) -> schemas.Preview:
    preview = await request.components.bulk.preview(request.org_id, selection, replay_to)
    names = await request.reader.endpoint_names(request.org_id, preview.by_endpoint)
    counts = tuple(schemas.EndpointCount(one, names[one], count) for one, count in preview.by_endpoint.items())
    return schemas.Preview(preview.count.value, not preview.count.exact, counts)


# -- selections --------------------------------------------------------------------------------------------


def queue_selection(body: schemas.BulkQueueIn, clock: Clock) -> Selection:
    chosen = _chosen(body, body.filter)
    if chosen is not None:
        return Selection(delivery_ids=chosen, states=WAITING_STATES)
    return Selection(queue=RetryQueueFilter() if body.filter is None else queue_from(body.filter, clock))


def letter_selection(body: schemas.BulkLettersIn) -> Selection:
    chosen = _chosen(body, body.filter)
    if chosen is not None:
        return Selection(delivery_ids=chosen, states=DEAD_STATES)
    return Selection(letters=DeadLetterFilter() if body.filter is None else letters_from(body.filter, "filter."))


def replay_selection(body: schemas.ReplayIn) -> Selection:
    since, until = span_of(body)
    if since is None or until is None:
        raise InvalidInput("since" if since is None else "until", "must be given")
    if until <= since:
        raise InvalidInput(name_of(body, "until"), f"must be later than {name_of(body, 'since')}")
    status = None if body.status is None else EventStatus(body.status)
    return Selection(
        events=EventFilter(status=status, event_type=body.event_type, created_from=since, created_before=until)
    )


def _chosen(body: schemas.BulkIn, chosen: msgspec.Struct | None) -> tuple[UUID, ...] | None:
    """The selected ids, if the selection is by id. Exactly one kind of selection is required, so that nobody selects
    everything by accident."""
    if body.all is False:
        raise InvalidInput("all", "must be true")
    ways = (body.delivery_ids is not None, _has_fields(chosen), body.all is not None)
    if sum(ways) != 1:
        message = 'give exactly one of "delivery_ids", a "filter" with at least one field, and "all": true'
        raise InvalidInput("body", message)
    return body.delivery_ids


def _has_fields(chosen: msgspec.Struct | None) -> bool:
    return chosen is not None and any(getattr(chosen, name) not in (None, UNSET) for name in chosen.__struct_fields__)


# -- shapes ------------------------------------------------------------------------------------------------------


async def bulk_shown(bulk: model.Bulk, request: ApiRequest) -> schemas.Bulk:
    canaries = None if bulk.canaries is None else all_of(_canary_shown, bulk.canaries)
    who = await request.who(bulk.actor)
    return shape(schemas.Bulk, bulk, total_is_floor=not bulk.total_exact, canaries=canaries, **who)


def _canary_shown(canary: model.Canary) -> schemas.Canary:
    return schemas.Canary(hexadecimal(canary.cause), canary.delivery_id, canary.succeeded)
