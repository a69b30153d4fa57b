"""A store after a bad month: a month of events, a hundred thousand dead letters (half of them from one outage), waiting
retries, and the configuration and actions of operators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from bench.databases import Database
from bench.reviewing import DONE, NAME, WAITING
from bench.rolled_up import add_waiting, roll_up, spread_dead, spread_finished
from bench.setting import settings_for
from bench.stock import Wanted, stock
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY, SECOND, Instant
from doorstep.model.alert import Alert, AlertChange, AlertWrite, ChannelKind, Ending, Rule
from doorstep.model.bulk import BulkKind, Selection
from doorstep.model.endpoint import Circuit, CircuitState
from doorstep.model.org import Role
from doorstep.model.record import uuid7
from doorstep.model.rollup import HOUR
from doorstep.operations.channels import ChannelForm
from doorstep.stores.store import Store

ENDPOINTS = 200
_CAUSES = 3 * ENDPOINTS
_ALERTS, _OPEN_ALERTS = 1_000, 40
_OPERATIONS, _CHANNELS, _KEYS, _SILENCES, _OPEN_CIRCUITS = 60, 50, 40, 20, 20
_ONE_BATCH_OF = 10
"""One in this many dead letters is a batch."""
_TRIES = 40
"""The number of attempts of the delivery with the most attempts."""

Ids = dict[str, str]
"""Ids by the names of the parameters in page paths."""


def crowd(database: Database, url: str, events: int, now: Instant) -> Ids:
    """Add `events` events. One in ten is a dead letter, one in a hundred waits for a retry, the rest are delivered."""
    stock(database, *(Wanted(url, event_type=f"bench.{n}") for n in range(ENDPOINTS)))
    spread_finished(database, events - events // 10 - events // 100, now)
    spread_dead(database, events // 20, now, endpoint="(SELECT min(id) FROM doorstep_endpoints)")
    spread_dead(database, events // 20, now, cause=f"2 + i % {_CAUSES}")
    add_waiting(database, events // 100, now)
    roll_up(database, now)
    ids = asyncio.run(_arrange(database.url, url))
    database.run(
        *_lines(database, now, events // 10),
        *_failures(events // 100),
        *_tries(now),
        *_entities(now, events // 10),
        f"UPDATE doorstep_deliveries SET batch = true WHERE state = 'dead' AND id % {_ONE_BATCH_OF} = 0",
        *(["VACUUM ANALYZE"] if database.store == "postgres" else []),
    )
    return ids | _found(database)


# -- by plain SQL ------------------------------------------------------------------------------------------


def _lines(database: Database, now: Instant, count: int) -> list[str]:
    """Audit entries, one per second."""
    subject = "lower(hex(uuid7(1)))" if database.store == "sqlite" else "gen_random_uuid()::text"
    return [f"{_numbers(count)} {_AUDIT.format(begin=now - count * SECOND, second=SECOND, subject=subject)}"]


def _failures(count: int) -> list[str]:
    """The deliveries that failed again in the newest bulk operation."""
    return [_ITEMS.format(count=count)]


def _tries(now: Instant) -> list[str]:
    """Give the newest dead letter many attempts."""
    return [
        _MORE_TRIES.format(last=_TRIES, now=now, second=SECOND),
        _MORE_MOVES.format(last=_TRIES, now=now, second=SECOND),
        f"UPDATE doorstep_deliveries SET attempt = {_TRIES}, moves = {2 * _TRIES} WHERE id = {_NEWEST_DEAD}",
    ]


def _entities(now: Instant, count: int) -> list[str]:
    """Pipeline entities, half of which wait at the gate. The other half have passed it."""
    numbers, bits = _numbers(count), {"name": NAME, "waiting": WAITING, "done": DONE, "now": now}
    return [f"{numbers} {_ENTITIES.format_map(bits)}", _ENTITY_HISTORY]


def _numbers(count: int) -> str:
    return f"WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count})"


_NEWEST_DEAD = "(SELECT max(id) FROM doorstep_deliveries WHERE state = 'dead')"
_AUDIT = """
INSERT INTO doorstep_audit (org_id, at, actor, action, subjects, result, reason)
SELECT (SELECT min(org_id) FROM doorstep_endpoints), {begin} + i * CAST({second} AS BIGINT), 'past',
    CASE i % 2 WHEN 0 THEN 'delivery.retry' ELSE 'delivery.skip' END, '["' || {subject} || '"]', '1 done', '' FROM numbers
"""
_ITEMS = """
INSERT INTO doorstep_bulk_items (bulk_id, delivery_id, org_id, attempt, succeeded)
SELECT (SELECT max(id) FROM doorstep_bulks), id, org_id, 1, false FROM doorstep_deliveries
WHERE state = 'dead' ORDER BY id LIMIT {count}
"""
_MORE_TRIES = f"""
INSERT INTO doorstep_attempts (delivery_id, number, move, late, org_id, endpoint_id, worker, started_at, finished_at, dns_us,
    connect_us, tls_us, first_byte_us, response_code, category, code, reason, detail, request_headers, response_headers,
    response_body)
WITH RECURSIVE numbers (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM numbers WHERE i < {{last}})
SELECT delivery_id, i, 2 * i, 0, org_id, endpoint_id, worker, {{now}} + i * CAST({{second}} AS BIGINT),
    {{now}} + i * CAST({{second}} AS BIGINT), 0, 0, 0, 900, 400, category, code, reason, detail, request_headers,
    response_headers, response_body
FROM doorstep_attempts, numbers WHERE delivery_id = {_NEWEST_DEAD}
"""
_MORE_MOVES = f"""
INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
WITH RECURSIVE numbers (i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM numbers WHERE i < 2 * {{last}})
SELECT id, i, org_id, {{now}} + i * CAST({{second}} AS BIGINT),
    CASE i % 2 WHEN 0 THEN 'in_progress' ELSE 'pending' END, CASE i % 2 WHEN 0 THEN 'pending' ELSE 'in_progress' END,
    i / 2, ''
FROM doorstep_deliveries, numbers WHERE id = {_NEWEST_DEAD}
"""
_ENTITIES = """
INSERT INTO doorstep_entities (org_id, pipeline, entity_id, status, phase, data, metadata, created_at, changed_at, version)
SELECT (SELECT min(org_id) FROM doorstep_endpoints), '{name}', 'past-' || i,
    CASE i % 2 WHEN 0 THEN '{waiting}' ELSE '{done}' END, 'resting', '{{}}', '{{}}', {now}, {now}, 1 FROM numbers
"""
_ENTITY_HISTORY = """
INSERT INTO doorstep_entity_history (entity_key, version, org_id, at, new_status, reason)
SELECT id, 1, org_id, changed_at, status, '' FROM doorstep_entities
"""


def _found(database: Database) -> Ids:
    dead = f"FROM doorstep_deliveries d JOIN doorstep_events e ON e.id = d.event_id WHERE d.id = {_NEWEST_DEAD}"
    questions = {
        "delivery_id": f"SELECT d.uid {dead}",
        "event_id": f"SELECT e.uid {dead}",
        "delivered_id": "SELECT uid FROM doorstep_events WHERE status = 'delivered' ORDER BY id DESC LIMIT 1",
        "waiting_id": "SELECT uid FROM doorstep_deliveries WHERE state = 'pending' ORDER BY id DESC LIMIT 1",
        "batch_id": "SELECT e.uid FROM doorstep_deliveries d JOIN doorstep_events e ON e.id = d.event_id"
        " WHERE d.batch LIMIT 1",
        "endpoint_id": "SELECT uid FROM doorstep_endpoints ORDER BY id LIMIT 1",
        "bulk_id": "SELECT uid FROM doorstep_bulks ORDER BY id DESC LIMIT 1",
        "alert_id": "SELECT uid FROM doorstep_alerts ORDER BY id DESC LIMIT 1",
    }
    found = {name: str(database.ids(question)[0]) for name, question in questions.items()}
    return found | {"pipeline": NAME, "entity_id": "past-2", "gate": WAITING}


# -- through Doorstep's own methods ------------------------------------------------------------------------


async def _arrange(database_url: str, url: str) -> Ids:
    doorstep = Doorstep(settings_for(database_url))
    await doorstep.open(migrate=False)
    try:
        endpoint_ids = [one.endpoint_id for one in await doorstep.components.directory.endpoints_of(DEFAULT_ORG)]
        now = doorstep.clock.now()
        await _open_circuits(doorstep.components.store, endpoint_ids[:_OPEN_CIRCUITS], now)
        await _tell(doorstep.components.store, endpoint_ids, now)
        await _operate(doorstep, endpoint_ids)
        key, _ = await doorstep.components.keys.create(DEFAULT_ORG, "bench", Role.VIEWER, "bench")
        receipt = await doorstep.send("bench.wide", b"1", endpoint_ids=endpoint_ids)
        return {
            "key_id": str(key.key_id),
            "channel_id": await _add_channels(doorstep, url),
            "wide_id": str(receipt.event_id),
        }
    finally:
        await doorstep.close()


async def _open_circuits(store: Store, endpoint_ids: Sequence[UUID], now: Instant) -> None:
    for one in endpoint_ids:
        state = Circuit(endpoint_id=one, state=CircuitState.OPEN, failures=9, changed_at=now, until=now + 12 * HOUR)
        await store.put_circuit(state, 0, "past")


async def _tell(store: Store, endpoint_ids: Sequence[UUID], now: Instant) -> None:
    alerts = [_alert(number, endpoint_ids[number % len(endpoint_ids)], now) for number in range(_ALERTS)]
    await store.write_alerts(AlertWrite(org_id=DEFAULT_ORG, changes=tuple(AlertChange(one, 0) for one in alerts)))


def _alert(number: int, endpoint_id: UUID, now: Instant) -> Alert:
    """An alert. The newest alerts are open, the others have ended."""
    opened_at = now - (_ALERTS - number) * 10 * SECOND
    is_over = number < _ALERTS - _OPEN_ALERTS
    return Alert(
        alert_id=uuid7(opened_at),
        org_id=DEFAULT_ORG,
        rule=Rule.DEAD_LETTER,
        opened_at=opened_at,
        seen_at=opened_at,
        endpoint_id=endpoint_id,
        endpoint_name="past",
        cause=number,
        reason="past",
        ended_at=opened_at + SECOND if is_over else None,
        ended_because=Ending.ELAPSED if is_over else None,
    )


async def _operate(doorstep: Doorstep, endpoint_ids: Sequence[UUID]) -> None:
    for number in range(_SILENCES):
        until_at = doorstep.clock.now() + DAY
        chosen = endpoint_ids[number]
        await doorstep.components.alerts.silence(DEFAULT_ORG, "bench", until_at=until_at, endpoint_id=chosen)
    for _ in range(_KEYS):
        await doorstep.components.keys.create(DEFAULT_ORG, "bench", Role.VIEWER, "bench")
    for _ in range(_OPERATIONS):
        selection = Selection(delivery_ids=(uuid7(doorstep.clock.now()),))
        bulk = await doorstep.components.bulk.start(BulkKind.RESOLVE, DEFAULT_ORG, selection, "bench")
        await doorstep.components.bulk.cancel(DEFAULT_ORG, bulk.bulk_id, "bench")


async def _add_channels(doorstep: Doorstep, url: str) -> str:
    """Add channels. This comes last, because a channel is an endpoint too."""
    desk = doorstep.components.channels
    forms = [ChannelForm(name=f"bench.{n}", kind=ChannelKind.WEBHOOK, target=url) for n in range(_CHANNELS)]
    made = [await desk.create(form, DEFAULT_ORG, "bench") for form in forms]
    return str(made[0][0].channel_id)
