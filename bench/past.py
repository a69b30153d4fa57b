"""Fills a database with history by plain SQL, in seconds instead of the minutes or days that Doorstep would need.

The rows are the same as those that the store itself would have written. The same SQL text works in both databases.
"""

from __future__ import annotations

from bench.databases import Database
from doorstep.clock import Instant

_FIRST_ENDPOINT = "(SELECT min(id) FROM doorstep_endpoints)"


def add_finished(database: Database, count: int, settled_at: Instant | str, endpoint: str = _FIRST_ENDPOINT) -> None:
    """Add `count` delivered deliveries, each with its event, its attempt and its history.

    The instant and the endpoint may be expressions of `i`, the row's id.
    """
    _add_settled(database, count, settled_at, _DELIVERED | {"endpoint": endpoint})


def add_dead(
    database: Database, count: int, died_at: Instant | str, endpoint: str = _FIRST_ENDPOINT, cause: str = "1"
) -> range:
    """Add `count` dead letters of failed events, and return their row ids. The cause may be an expression too."""
    error = f"'permanent', 'INVALID_FORMAT', 'past', {cause}"
    bits = {"ended": died_at, "failed": died_at, "endpoint": endpoint, "error": error}
    return _add_settled(database, count, died_at, _DEAD | bits)


def _add_settled(database: Database, count: int, at: Instant | str, bits: dict[str, object]) -> range:
    first = _next_id(database)
    numbers = _numbers(first, count)
    bits = bits | _bits(database, at)
    database.run(
        numbers + _EVENTS.format_map(bits),
        numbers + _SETTLED.format_map(bits),
        numbers + _ATTEMPTS.format_map(bits),
        numbers + _history(bits, 1, "pending", "in_progress"),
        numbers + _history(bits, 2, "in_progress", str(bits["state"])),
        *_move_marks(database, first + count - 1),
    )
    return range(first, first + count)


def add_waiting(database: Database, count: int, created_at: Instant | str) -> int:
    """Add `count` events without deliveries, which wait in the inbox. Returns the last row id."""
    first = _next_id(database)
    bits = _bits(database, created_at) | _WAITING | {"status": "received", "open": 0, "deliveries": 0}
    database.run(_numbers(first, count) + _EVENTS.format_map(bits), *_move_marks(database, first + count - 1))
    return first + count - 1


def add_retries(
    database: Database, count: int, due_at: Instant, spacing: Instant, failed_at: Instant | None = None
) -> int:
    """Add `count` deliveries that failed once, are due one after the other, and are distributed over all endpoints.

    Returns the first row id. The delivery with the row id first + n is due at due_at + n * spacing.
    """
    first = _next_id(database)
    numbers = _numbers(first, count)
    at = due_at if failed_at is None else failed_at
    bits = _bits(database, at) | {"due": due_at, "first": first, "spacing": spacing}
    database.run(
        numbers + _EVENTS.format_map(bits | _WAITING),
        numbers + _RETRIES.format_map(bits),
        *_move_marks(database, first + count - 1),
    )
    return first


_WAITING: dict[str, object] = {"status": "queued", "open": 1, "dead": 0, "done": 0, "ended": "NULL"}
_DELIVERED: dict[str, object] = {
    "status": "delivered", "open": 0, "dead": 0, "done": 1, "ended": "NULL",
    "state": "delivered", "failed": "NULL", "answer": 200, "error": "NULL, NULL, NULL, NULL", "said": "NULL, NULL, ''",
}  # fmt: skip
_DEAD: dict[str, object] = {
    "status": "failed", "open": 0, "dead": 1, "done": 0,
    "state": "dead", "answer": 400,
    "said": "'permanent', 'INVALID_FORMAT', 'past'",
}  # fmt: skip

_EVENTS = """
INSERT INTO doorstep_events (id, uid, org_id, event_type, status, delivery_count, open_count, dead_count, done_count,
    created_at, ended_at, correlation_id, metadata, payload)
SELECT i, {uid}, (SELECT min(org_id) FROM doorstep_endpoints), 'bench', '{status}', {deliveries}, {open}, {dead}, {done},
    {at}, {ended}, 'past', {bytes}, {bytes} FROM numbers
"""

_SETTLED = """
INSERT INTO doorstep_deliveries (id, uid, org_id, event_id, endpoint_id, state, created_at, token, attempt, retries_max,
    moves, first_failed_at, last_attempt_at, settled_at, response_code, category, code, reason, cause)
SELECT i, {uid}, (SELECT min(org_id) FROM doorstep_endpoints), i, {endpoint}, '{state}',
    {at}, 1, 1, 3, 2, {failed}, {at}, {at}, {answer}, {error} FROM numbers
"""

_RETRIES = """
INSERT INTO doorstep_deliveries (id, uid, org_id, event_id, endpoint_id, state, due_at, created_at, token, attempt,
    retry_attempts, retries_max, moves, first_failed_at, last_attempt_at, response_code, category, code, reason)
SELECT i, {uid}, (SELECT min(org_id) FROM doorstep_endpoints), i,
    (SELECT min(id) FROM doorstep_endpoints) + i % (SELECT count(*) FROM doorstep_endpoints), 'pending',
    {due} + (i - {first}) * {spacing}, {at}, 1, 1, 0, 3, 2, {at}, {at}, 503, 'transient', 'SERVICE_UNAVAILABLE', 'past'
FROM numbers
"""

_ATTEMPTS = """
INSERT INTO doorstep_attempts (delivery_id, number, move, late, org_id, endpoint_id, worker, started_at, finished_at,
    dns_us, connect_us, tls_us, first_byte_us, response_code, category, code, reason, detail, request_headers, response_headers,
    response_body)
SELECT i, 1, 2, 0, (SELECT min(org_id) FROM doorstep_endpoints), {endpoint}, 'past', {at}, {at}, 0, 0, 0, 900, {answer},
    {said}, '', {bytes}, {bytes}, {bytes} FROM numbers
"""

_HISTORY = """
INSERT INTO doorstep_history (delivery_id, move, org_id, at, old_state, new_state, attempt, note)
SELECT i, {move}, (SELECT min(org_id) FROM doorstep_endpoints), {at}, '{old}', '{new}', 1, '' FROM numbers
"""


def _history(bits: dict[str, object], move: int, old: str, new: str) -> str:
    return _HISTORY.format_map(bits | {"move": move, "old": old, "new": new})


def _bits(database: Database, at: Instant | str) -> dict[str, object]:
    """The parts of the SQL that depend on the database. The ids sort by creation, like the ids of the store."""
    if database.store == "sqlite":
        return {"at": at, "deliveries": 1, "uid": f"uuid7({at})", "bytes": f"x'{_FILLING.hex()}'"}
    uid = f"(lpad(to_hex(({at}) / 1000), 12, '0') || '7' || substr(md5(random()::text), 1, 19))::uuid"
    return {"at": at, "deliveries": 1, "uid": uid, "bytes": rf"'\x{_FILLING.hex()}'::bytea"}


_FILLING = b'{"text": "' + b"x" * 100 + b'"}'


def _numbers(first: int, count: int) -> str:
    last = first + count - 1
    return f"WITH RECURSIVE numbers (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM numbers WHERE i < {last})"


def _next_id(database: Database) -> int:
    tables = ("doorstep_events", "doorstep_deliveries")
    return 1 + max(database.ask(f"SELECT coalesce(max(id), 0) FROM {table}")[0][0] for table in tables)


def _move_marks(database: Database, last: int) -> list[str]:
    """Make the store continue numbering after these rows, and update the planner's statistics."""
    if database.store == "sqlite":
        return [f"UPDATE doorstep_variables SET value = max(value, {last}) WHERE name IN ('events', 'deliveries')"]
    tables = ("doorstep_events", "doorstep_deliveries")
    moves = [f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {last})" for table in tables]
    return [*moves, "VACUUM ANALYZE"]
