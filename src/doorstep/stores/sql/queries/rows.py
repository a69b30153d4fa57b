"""Converts rows to records: for each record, the columns to select and the function that builds it from a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import Select, and_, bindparam, case, func, select

from doorstep.clock import Instant
from doorstep.errors import NotFound
from doorstep.model.attempt import Attempt, Timings
from doorstep.model.delivery import Delivery, DeliveryState, HistoryEntry
from doorstep.model.endpoint import Circuit, CircuitState, Endpoint
from doorstep.model.event import Event, EventStatus, EventView
from doorstep.model.org import ApiKey, Org, Role
from doorstep.stores.sql.queries.transaction import Row, Transaction, execute, parts
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

EVENT = select(
    _E.uid,
    _E.event_type,
    PAYLOAD,
    _E.created_at,
    _E.correlation_id,
    _E.deliver_at,
    _E.expires_at,
    _E.metadata,
    _E.ordering_key,
    _E.trace,
).select_from(events)


def event_from(org_id: UUID, row: Row) -> Event:
    return Event(
        event_id=row[0],
        org_id=org_id,
        event_type=row[1],
        payload=row[2],
        created_at=row[3],
        correlation_id=row[4],
        deliver_at=row[5],
        expires_at=row[6],
        metadata=row[7],
        ordering_key=row[8],
        trace=row[9],
    )


# Does not join `orgs`: with a join and a list of ids, PostgreSQL used the index by organization and read all of the
# organization's 110,000 events to find 50.
EVENT_WITH_STATUS = EVENT.add_columns(_E.id, _E.status, _E.delivery_count, _E.ended_at)


def view_from(org_id: UUID, row: Row, retrying: Retrying) -> EventView:
    _, status, delivery_count, ended_at = row[-4:]
    return EventView(
        event=event_from(org_id, row),
        status=EventStatus(status),
        deliveries=delivery_count,
        retry_attempts=retrying.retry_attempts,
        last_retry_at=retrying.last_retry_at,
        failed_at=ended_at if status == EventStatus.FAILED else None,
        next_retry_at=retrying.next_retry_at,
    )


DELIVERY: Select[*tuple[object, ...]] = (
    select(
        _D.uid,
        _E.uid,
        endpoints.c.uid,
        orgs.c.uid,
        _E.event_type,
        _D.state,
        _D.due_at,
        _D.created_at,
        _D.attempt,
        _D.retry_attempts,
        _D.retries_max,
        _D.forced,
        _D.claimed_at,
        _D.worker,
        _D.first_failed_at,
        _D.last_attempt_at,
        _D.settled_at,
        _D.category,
        _D.code,
        _D.reason,
        _D.response_code,
        _D.deleted_at,
        _D.cause,
        _D.payload.is_not(None),
        _D.due_at == NEVER,
        _D.batch,
    )
    .select_from(deliveries)
    .join(events, _E.id == _D.event_id)
    .join(endpoints, endpoints.c.id == _D.endpoint_id)
    .join(orgs, orgs.c.id == _D.org_id)
)


def delivery_from(row: Row) -> Delivery:
    return Delivery(
        delivery_id=row[0],
        event_id=row[1],
        endpoint_id=row[2],
        org_id=row[3],
        event_type=row[4],
        state=DeliveryState(row[5]),
        due_at=None if row[24] else row[6],
        created_at=row[7],
        attempt=row[8],
        retry_attempts=row[9],
        retries_max=row[10],
        forced=row[11],
        claimed_at=row[12],
        worker=row[13],
        first_failed_at=row[14],
        last_attempt_at=row[15],
        settled_at=row[16],
        category=row[17],
        code=row[18],
        reason=row[19],
        response_code=row[20],
        deleted=row[21] is not None,
        cause=row[22],
        edited=row[23],
        blocked=bool(row[24]),
        batch=row[25],
    )


ATTEMPT = select(
    attempts.c.number,
    attempts.c.started_at,
    attempts.c.finished_at,
    attempts.c.dns_us,
    attempts.c.connect_us,
    attempts.c.tls_us,
    attempts.c.first_byte_us,
    attempts.c.request_headers,
    attempts.c.response_code,
    attempts.c.response_headers,
    attempts.c.response_body,
    attempts.c.category,
    attempts.c.code,
    attempts.c.reason,
    attempts.c.detail,
    attempts.c.worker,
    attempts.c.next_retry_at,
    attempts.c.late,
)


def attempt_from(delivery_id: UUID, row: Row) -> Attempt:
    return Attempt(
        delivery_id=delivery_id,
        number=row[0],
        started_at=row[1],
        finished_at=row[2],
        timings=Timings(*row[3:7]),
        request_headers=row[7],
        response_code=row[8],
        response_headers=row[9],
        response_body=row[10],
        category=row[11],
        code=row[12],
        reason=row[13],
        detail=row[14],
        worker=row[15],
        next_retry_at=row[16],
        late=row[17] > 0,
    )


HISTORY = select(history.c.at, history.c.old_state, history.c.new_state, history.c.attempt, history.c.note).select_from(
    history
)


def history_from(row: Row) -> HistoryEntry:
    return HistoryEntry(row[0], DeliveryState(row[1]), DeliveryState(row[2]), row[3], row[4])


CIRCUIT = select(
    circuits.c.state,
    circuits.c.failures,
    circuits.c.failing_since,
    circuits.c.changed_at,
    circuits.c.until,
    circuits.c.version,
)


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


API_KEY = select(
    keys.c.uid,
    orgs.c.uid,
    keys.c.name,
    keys.c.role,
    keys.c.prefix,
    keys.c.digest,
    keys.c.created_at,
    keys.c.expires_at,
    keys.c.revoked_at,
).join(orgs, orgs.c.id == keys.c.org_id)


def api_key_from(row: Row) -> ApiKey:
    return ApiKey(
        key_id=row[0],
        org_id=row[1],
        name=row[2],
        role=Role(row[3]),
        prefix=row[4],
        digest=row[5],
        created_at=row[6],
        expires_at=row[7],
        revoked_at=row[8],
    )


_RETRYING = (
    select(
        _D.event_id,
        func.max(_D.retry_attempts),
        func.max(case((_D.attempt > 1, _D.last_attempt_at))),
        func.min(case((and_(_D.state == DeliveryState.PENDING.value, _D.attempt > 0), _D.due_at))),
    )
    .where(_D.event_id.in_(bindparam("keys", expanding=True)))
    .group_by(_D.event_id)
)


class Retrying(NamedTuple):
    """A summary of the retries of all deliveries of an event. The defaults apply to an event without deliveries."""

    retry_attempts: int = 0
    last_retry_at: Instant | None = None
    next_retry_at: Instant | None = None


def retrying_of(event_keys: Sequence[int]) -> Transaction[dict[int, Retrying]]:
    """The summary of retries of each event, by the event's key."""
    found = dict.fromkeys(event_keys, Retrying())
    for part in parts(event_keys):
        found |= {row[0]: Retrying(*row[1:]) for row in (yield execute(_RETRYING, keys=part))}
    return found


def org_key(org_id: UUID) -> Transaction[int]:
    """The internal key of an organization; NotFound if the organization does not exist."""
    rows = yield execute(ORG_KEY, org=org_id)
    if not rows:
        raise NotFound(f"no organization {org_id}")
    return int(rows[0][0])
