"""Converts rows to records: for each record, the columns to select and the function that builds it from a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Select, Table, and_, bindparam, case, func, select

from doorstep.clock import Instant
from doorstep.model.attempt import Attempt, AttemptSummary, Timings
from doorstep.model.claim import Lane, Settlement
from doorstep.model.delivery import Delivery, DeliveryState, HistoryEntry
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint, EndpointState
from doorstep.model.event import Event, EventStatus, EventView
from doorstep.model.org import ApiKey, Org, Role
from doorstep.stores.limits import storable
from doorstep.stores.sql.keys import Address
from doorstep.stores.sql.queries.transaction import KEYS, Row, Transaction, execute_in_parts, execute_one
from doorstep.stores.sql.schema import (
    NEVER,
    attempts,
    circuits,
    deliveries,
    endpoints,
    events,
    history,
    keys,
    orgs,
    payloads,
)

FieldColumns = dict[str, ColumnElement[Any]]


def columns_of(record: type[Struct], table: Table, *left_out: str, **others: ColumnElement[Any]) -> FieldColumns:
    """The column for each field of a record, except for the fields in `left_out`. It is the column in `others` if there
    is one, otherwise the column of `table` with the field's name."""
    names = [name for name in record.__struct_fields__ if name not in left_out]
    return {name: others[name] if name in others else table.c[name] for name in names}


def fields_from(columns: FieldColumns, row: Row) -> dict[str, Any]:
    """The fields of a record, from a row that was selected with `columns_of`. More columns may follow those of the
    record."""
    return dict(zip(columns, row, strict=False))


decode_endpoint = msgspec.json.Decoder(Endpoint).decode
decode_org = msgspec.json.Decoder(Org).decode

_D, _E = deliveries.c, events.c

IN_ORG = orgs.c.uid == bindparam("org")
"""The condition that restricts a statement to the rows of one organization. The statement must join `orgs`."""

ORG_KEY = select(orgs.c.id).where(IN_ORG)

EVENT_KEY = (
    select(_E.id)
    .join(orgs, orgs.c.id == _E.org_id)
    .where(IN_ORG, _E.uid == bindparam("event"))
    .correlate(None)
    .scalar_subquery()
)
"""The key of one event, for statements about its deliveries. With a join instead, SQLite started from the organization
and read all of its deliveries (a million) to find one."""

_LONG_PAYLOAD = select(payloads.c.payload).where(payloads.c.event_id == _E.id).scalar_subquery()
PAYLOAD = func.coalesce(_E.payload, _LONG_PAYLOAD)
"""An event's payload, which is stored in the event's row, or in `payloads` if it is long."""

_EVENT = columns_of(Event, events, "org_id", event_id=_E.uid, payload=PAYLOAD)
_LEASE = (_E.receive_count, _E.leased_by, _E.visible_at)
EVENT_WITH_STATUS = select(*_EVENT.values(), *_LEASE, _E.id, _E.status, _E.delivery_count, _E.ended_at).select_from(
    events
)
"""This does not join `orgs`: with a join and a list of ids, PostgreSQL used the index by organization and read all of
the organization's 110,000 events to find 50."""


def view_from(org_id: UUID, row: Row, retrying: Retrying) -> EventView:
    receive_count, leased_by, visible_at, _, status, delivery_count, ended_at = row[-7:]
    return EventView(
        event=Event(org_id=org_id, **fields_from(_EVENT, row)),
        status=EventStatus(status),
        deliveries=delivery_count,
        failed_at=ended_at if status == EventStatus.FAILED else None,
        receive_count=receive_count,
        leased_by=leased_by,
        visible_at=visible_at,
        **retrying._asdict(),
    )


_DELIVERY = columns_of(
    Delivery,
    deliveries,
    delivery_id=_D.uid,
    event_id=_E.uid,
    endpoint_id=endpoints.c.uid,
    org_id=orgs.c.uid,
    event_type=_E.event_type,
    deleted=_D.deleted_at.is_not(None),
    edited=_D.payload.is_not(None),
    blocked=and_(_D.due_at == NEVER, _D.attempt == 0),
)
DELIVERY: Select[*tuple[Any, ...]] = (
    select(*_DELIVERY.values())
    .select_from(deliveries)
    .outerjoin(events, _E.id == _D.event_id)
    .outerjoin(endpoints, endpoints.c.id == _D.endpoint_id)
    .outerjoin(orgs, orgs.c.id == _D.org_id)
)
"""The outer joins find the same rows as inner joins would, but keep a planner from starting with another table, for
example with the organization, and reading all its deliveries."""


def delivery_from(row: Row) -> Delivery:
    fields = fields_from(_DELIVERY, row)
    fields["state"] = DeliveryState(fields["state"])
    fields["blocked"] = bool(fields["blocked"])
    if fields["due_at"] == NEVER:
        fields["due_at"] = None
    return Delivery(**fields)


_ATTEMPT = columns_of(Attempt, attempts, "delivery_id", "timings", late=attempts.c.late > 0)
_TIMINGS = [attempts.c[f"{phase}_us"] for phase in Timings.__struct_fields__]
ATTEMPT = select(*_ATTEMPT.values(), *_TIMINGS)


def attempt_from(delivery_id: UUID, row: Row) -> Attempt:
    timings = Timings(*row[len(_ATTEMPT) :])
    return Attempt(delivery_id=delivery_id, timings=timings, **fields_from(_ATTEMPT, row))


_SUMMARY = columns_of(
    AttemptSummary,
    attempts,
    delivery_id=_D.uid,
    event_id=_E.uid,
    endpoint_id=endpoints.c.uid,
    event_type=_E.event_type,
    late=attempts.c.late > 0,
)


def _attempt_summaries(*, isouter: bool) -> Select[*tuple[Any, ...]]:
    return (
        select(*_SUMMARY.values())
        .select_from(attempts)
        .join(deliveries, _D.id == attempts.c.delivery_id, isouter=isouter)
        .join(events, _E.id == _D.event_id, isouter=isouter)
        .join(endpoints, endpoints.c.id == attempts.c.endpoint_id, isouter=isouter)
    )


ATTEMPT_SUMMARY = _attempt_summaries(isouter=True)
"""A planner starts with the attempts; see DELIVERY."""
ATTEMPT_SUMMARY_OF_DELIVERIES = _attempt_summaries(isouter=False)
"""A planner may start with the deliveries."""


def attempt_summary_from(row: Row) -> AttemptSummary:
    return AttemptSummary(**fields_from(_SUMMARY, row))


RESULT_COLUMNS = """worker, started_at, finished_at, dns_us, connect_us, tls_us, first_byte_us, response_code, category,
    code, reason, detail, request_headers, response_headers, response_body"""
"""The columns of an attempt that `settle` writes, for hand-written SQL."""


def result_values(settlement: Settlement) -> tuple[Any, ...]:
    """The values of RESULT_COLUMNS."""
    outcome, reply = settlement.outcome, settlement.outcome.reply
    return (
        settlement.claim.worker,
        reply.started_at,
        reply.finished_at,
        reply.timings.dns,
        reply.timings.connect,
        reply.timings.tls,
        reply.timings.first_byte,
        reply.status,
        outcome.category and outcome.category.value,
        outcome.code and storable(outcome.code),
        outcome.reason and storable(outcome.reason),
        outcome.detail and storable(outcome.detail),
        reply.request_headers,
        reply.headers,
        reply.body,
    )


HISTORY = select(history.c.at, history.c.old_state, history.c.new_state, history.c.attempt, history.c.note)


def history_from(row: Row) -> HistoryEntry:
    return HistoryEntry(row[0], DeliveryState(row[1]), DeliveryState(row[2]), row[3], row[4])


CIRCUIT_FIELDS = ("state", "failures", "failing_since", "changed_at", "until", "version")
CIRCUIT = select(*(circuits.c[name] for name in CIRCUIT_FIELDS))


def circuit_from(endpoint_id: UUID, row: Row) -> Circuit:
    return Circuit(
        endpoint_id=endpoint_id,
        state=CircuitState(row[0]),
        failures=row[1],
        failing_since=row[2],
        changed_at=row[3],
        until=row[4],
        version=row[5],
    )


RECOVERABLE_AT = """CASE WHEN c.changed_at > 0 THEN (SELECT r.last_attempt_at FROM doorstep_deliveries r
    WHERE r.endpoint_id = lane.endpoint_id AND r.state = 'pending' AND r.on_recovery
    ORDER BY r.last_attempt_at, r.id LIMIT 1) END"""
"""The field `recoverable_at` of a lane. An endpoint whose circuit has never opened costs no seek."""


ATTEMPTABLE = """NOT EXISTS (SELECT 1 FROM doorstep_endpoints p
    WHERE p.id = lane.endpoint_id AND (p.state = 'paused' OR p.state = 'disabled'))"""
"""Whether the endpoint of a lane is neither paused nor disabled. It may be deleted."""


def lane_from(address: Address, row: Iterable[Any]) -> Lane:
    """The row contains the endpoint's key, the due time of its first delivery, the last attempt at those that wait for
    a recovery, and the columns of its circuit (NULLs if it has none)."""
    _, due_at, recoverable_at, *circuit = row
    stored = circuit_from(address.endpoint_id, tuple(circuit)) if circuit[0] else None
    return Lane(address.endpoint_id, address.org_id, due_at, stored, recoverable_at)


_API_KEY = columns_of(ApiKey, keys, key_id=keys.c.uid, org_id=orgs.c.uid)
API_KEY = select(*_API_KEY.values()).join(orgs, orgs.c.id == keys.c.org_id)


def api_key_from(row: Row) -> ApiKey:
    fields = fields_from(_API_KEY, row)
    return ApiKey(**fields | {"role": Role(fields["role"])})


_C = circuits.c
_RETRIED_AT = case(
    (and_(~_D.forced, _C.state != CircuitState.CLOSED.value, _C.until > _D.due_at), _C.until),
    else_=_D.due_at,
)
"""When a waiting delivery will really be retried, if its endpoint is active: not before the next probe, if the circuit
is open."""
_RETRYING = (
    select(
        _D.event_id,
        func.max(_D.retry_attempts),
        func.max(case((_D.attempt > 1, _D.last_attempt_at))),
        func.min(
            case(
                (
                    and_(
                        _D.state == DeliveryState.PENDING.value,
                        _D.attempt > 0,
                        _D.due_at < NEVER,
                        endpoints.c.state == EndpointState.ACTIVE.value,
                    ),
                    _RETRIED_AT,
                )
            )
        ),
    )
    .select_from(deliveries)
    .join(endpoints, endpoints.c.id == _D.endpoint_id)
    .outerjoin(circuits, _C.endpoint_id == _D.endpoint_id)
    .where(_D.event_id.in_(KEYS))
    .group_by(_D.event_id)
)


class Retrying(NamedTuple):
    """A summary of the retries of all deliveries of an event. The defaults apply to an event without deliveries."""

    retry_attempts: int = 0
    last_retry_at: Instant | None = None
    next_retry_at: Instant | None = None


def retrying_of(event_keys: Sequence[int]) -> Transaction[dict[int, Retrying]]:
    """The summary of retries of each event, by the event's key."""
    rows = yield from execute_in_parts(_RETRYING, "keys", event_keys)
    return dict.fromkeys(event_keys, Retrying()) | {row[0]: Retrying(*row[1:]) for row in rows}


def org_key(org_id: UUID) -> Transaction[int]:
    """The internal key of an organization; NotFound if the organization does not exist."""
    (key,) = yield from execute_one(f"no organization {org_id}", ORG_KEY, org=org_id)
    return int(key)
