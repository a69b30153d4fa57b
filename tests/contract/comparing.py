"""Compares two stores: their answers without store-specific handles, and everything that their read methods return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from msgspec.structs import asdict, replace

from doorstep.errors import NotFound
from doorstep.model.alert import Incidents
from doorstep.model.attempt import Attempt
from doorstep.model.claim import Claim, Lane, Moved, Settled, StatusChange
from doorstep.model.delivery import Delivery, DeliveryPayload
from doorstep.model.endpoint import Circuit
from doorstep.model.event import EventView, Receipt
from doorstep.model.listing import AuditFilter, CircuitHistory, DeliveryAttempts, DeliveryHistory, EventDeliveries, Orgs
from doorstep.model.record import Record
from doorstep.model.rollup import Span
from doorstep.stores.store import Cleaned, Store
from tests.contract.places import Place, SqlPlace
from tests.reference import ReferenceStore
from tests.support.shortcuts import living_endpoints

FOR_EVER = 2**62


def shown(answer: Any) -> Any:
    """The comparable form of an answer: claims without handles, sorted where the method promises no order."""
    match answer:
        case [Claim(), *_]:
            return sorted(map(_claim, answer)), _picked_up(answer)
        case [Receipt(), *_]:
            claims = [claim for receipt in answer for claim in receipt.claims]
            return [replace(receipt, claims=()) for receipt in answer], sorted(map(_claim, claims)), _picked_up(claims)
        case [Lane(), *_]:
            return sorted(answer, key=lambda lane: (lane.due_at, lane.endpoint_id))
        case [StatusChange(), *_]:
            return _sorted_changes(answer)
        case Settled():
            return sorted(map(_claim, answer.late)), _sorted_changes(answer.changes)
        case Moved():
            return sorted(answer.moves, key=lambda move: move.delivery_id), _sorted_changes(answer.changes)
        case Cleaned():  # stores may choose which of several expired keys go first
            return replace(answer, idempotency_keys=0)
        case tuple():
            return tuple(map(shown, answer))
    return answer


async def dump(store: Store, events: Sequence[tuple[UUID, UUID]]) -> dict[str, Any]:
    """Everything that the store returns about itself and about these events (organization and id of each)."""
    orgs = await store.find(None, Orgs())
    endpoints = await living_endpoints(store)
    return {
        "events": [await _event(store, *event) for event in events],
        "audit": [(await store.page(org.org_id, AuditFilter(), limit=1_000)).items for org in orgs],
        "orgs": orgs,
        "endpoints": endpoints,
        "circuits": [await store.get(Circuit, None, one.endpoint_id) for one in endpoints],
        "circuit history": [await store.find(None, CircuitHistory(endpoint_id=one.endpoint_id)) for one in endpoints],
        "incidents": sorted([line for org in orgs for line in await _incidents(store, org.org_id)]),
        "figures": [await _figures(store, None, None), *[await _figures(store, org.org_id, None) for org in orgs]],
        "figures of endpoints": [await _figures(store, one.org_id, one.endpoint_id) for one in endpoints],
        "lanes": shown(await store.due_lanes(0)),
        "claims": shown(await store.expired(FOR_EVER, 1_000)),
    }


async def rows_by_state(store: Store, place: Place) -> dict[str, int]:
    """Deliveries per state, counted from the rows themselves, because no store method returns this count."""
    if isinstance(store, ReferenceStore):
        return dict(Counter(row.delivery.state.value for row in store._tables.deliveries.values()))
    rows = await cast(SqlPlace, place).execute("SELECT state, count(*) FROM doorstep_deliveries GROUP BY state")
    return {str(state): cast(int, number) for state, number in rows}


async def _incidents(store: Store, org_id: UUID) -> list[str]:
    return [repr(replace(one, key=0)) for one in await store.find(org_id, Incidents(limit=10_000))]


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two values differ, down to the field. Read this first when a long comparison fails."""
    if one == other:
        return []
    if type(one) is type(other) and isinstance(one, Record):
        one, other = asdict(one), asdict(other)
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [line for key in one for line in differences(one[key], other[key], f"{path}.{key}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return [line for n in range(len(one)) for line in differences(one[n], other[n], f"{path}[{n}]")]
    return [f"{path}: {one!r} is not {other!r}"]


async def _figures(store: Store, org_id: UUID | None, endpoint_id: UUID | None) -> list[Any]:
    return [(await store.series(org_id, [endpoint_id], span, 0, FOR_EVER))[endpoint_id] for span in Span]


async def _event(store: Store, org_id: UUID, event_id: UUID) -> Any:
    deliveries = await store.find(org_id, EventDeliveries(event_id=event_id))
    logs = [
        (
            _by_number(await store.find(org_id, DeliveryAttempts(delivery_id=one.delivery_id))),
            await store.find(org_id, DeliveryHistory(delivery_id=one.delivery_id)),
            await _payload(store, one),
        )
        for one in deliveries
    ]
    try:
        return await store.get(EventView, org_id, event_id), deliveries, logs
    except NotFound:
        return None, deliveries, logs


async def _payload(store: Store, delivery: Delivery) -> bytes | None:
    try:
        return (await store.get(DeliveryPayload, delivery.org_id, delivery.delivery_id)).payload
    except NotFound:
        return None


def _by_number(attempts: list[Attempt]) -> list[Attempt]:
    """Attempts with the same number that one call wrote have no order among themselves."""
    assert [one.number for one in attempts] == sorted(one.number for one in attempts)
    return sorted(attempts, key=lambda one: (one.number, repr(one)))


def _claim(claim: Claim) -> tuple[Any, ...]:
    fields = claim._replace(key=None, event_key=None, picked_up=False)
    return (claim.delivery_id, claim.token, repr(fields))


def _picked_up(claims: Sequence[Claim]) -> list[UUID]:
    """The events that were picked up. Which delivery did it is not compared, only that exactly one did."""
    return sorted(claim.event_id for claim in claims if claim.picked_up)


def _sorted_changes(changes: Sequence[StatusChange]) -> list[StatusChange]:
    return sorted(changes, key=lambda change: change.event_id)
