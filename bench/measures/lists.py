"""The response times of lists with a million events, for every kind of filter: deliveries, attempts, events, and the
audit log. (Endpoints sorted by their health are in `stats`.)

The rows are arranged against the filters: dead letters, a rare type, the deliveries of a quiet endpoint and the actions
of a person who seldom acts are the oldest rows, and a hundred thousand waiting deliveries are the newest. Every first
page must have a match, if any exists. The requests are made one after the other over one connection.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.past import add_dead, add_finished, add_retries
from bench.serving import Client, Serving
from bench.setting import Setting
from bench.stock import Wanted, stock
from bench.timing import percentile
from doorstep.clock import DAY, SECOND, to_iso
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus

TARGET_MS = 50.0
_SHOWN = 10
_ENDPOINTS = 20
_KEPT = {"DOORSTEP_RETENTION_DAYS": "400"}
_BUSY, _QUIET = "(SELECT min(id) FROM doorstep_endpoints)", "(SELECT max(id) FROM doorstep_endpoints)"
_NAMED = {"busy": _BUSY, "quiet": _QUIET}
_AUDIT = """
WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count})
INSERT INTO doorstep_audit (org_id, at, actor, action, subjects, result, reason)
SELECT (SELECT min(org_id) FROM doorstep_endpoints), {begin} + i * CAST({step} AS BIGINT),
    CASE WHEN i <= 10 THEN 'seldom' ELSE 'often' END, CASE WHEN i <= 10 THEN 'key.create' ELSE 'retry' END, '[]', '1 done', ''
FROM numbers
"""


def measure(setting: Setting) -> Iterator[Figure]:
    events = setting.scaled(1_000_000, 50_000)
    for store in setting.stores:
        with setting.databases.fresh(store) as database:
            _fill(database, setting.receiver.url("ok"), events)
            with Serving(database, more=_KEPT) as serving:
                yield from _figures(setting, store, database, serving)


def _fill(database: Database, url: str, events: int) -> None:
    stock(database, *(Wanted(url, event_type=f"bench.{n}") for n in range(_ENDPOINTS)))
    now = time.time_ns() // 1_000
    begin, step = now - 2 * DAY, DAY // events
    database.run(_AUDIT.format(count=events, begin=begin, step=step))
    add_finished(database, 50, f"{begin} + i * CAST({step} AS BIGINT)", _QUIET)
    add_dead(database, 500, f"{begin} + i * CAST({step} AS BIGINT)", _BUSY)
    spread = f"{_BUSY} + i % {_ENDPOINTS - 1}"
    add_finished(database, events - events // 10 - 550, f"{begin} + i * CAST({step} AS BIGINT)", spread)
    add_retries(database, events // 10, now + DAY, SECOND // 100, now - DAY // 2)
    database.run(
        "UPDATE doorstep_events SET event_type = 'rare' WHERE id BETWEEN 10 AND 14",
        "UPDATE doorstep_events SET event_type = 'uncommon' WHERE id % 1000 = 0",
        *(["VACUUM ANALYZE"] if database.store == "postgres" else []),
    )


def _figures(setting: Setting, store: StoreName, database: Database, serving: Serving) -> Iterator[Figure]:
    client, times = Client(serving.port), setting.scaled(50, 5)
    ids = {
        name: database.ids(f"SELECT uid FROM doorstep_endpoints WHERE id = {one}")[0] for name, one in _NAMED.items()
    }
    middle = time.time_ns() // 1_000 - 3 * DAY // 2
    values = {**ids, "middle": to_iso(middle), "later": to_iso(middle + 10 * SECOND)}
    timed = {path: _timed(client, path.format_map(values), times) for path in _paths()}
    client.close()
    slow = sum(percentile(taken, 0.95) > TARGET_MS for taken in timed.values())
    note = f"of {len(timed)}, N={times} each"
    yield Figure(f"{store}: lists with a p95 above {TARGET_MS:g} ms", slow, "", at_most(0), note)
    for path in sorted(timed, key=lambda path: -percentile(timed[path], 0.95))[:_SHOWN]:
        taken = timed[path]
        note = f"median {percentile(taken, 0.5):.1f} ms"
        yield Figure(f"{store}: {path}, p95", percentile(taken, 0.95), "ms", at_most(TARGET_MS), note)


def _timed(client: Client, path: str, times: int) -> list[float]:
    """Times of the page in milliseconds. The first request, which prepares the statements, is not counted."""
    first = client.call("GET", path)
    items = next(iter(first.values()))
    if first["pagination"]["has_more"] and not items:
        raise RuntimeError(f"{path} has an empty page before its first match")
    taken: list[float] = []
    for _ in range(times):
        begun = time.monotonic()
        client.call("GET", path)
        taken.append(1_000 * (time.monotonic() - begun))
    return taken


_TIMES = ["since=2020-01-01T00:00:00Z&until=2021-01-01T00:00:00Z", "since={middle}&until={later}"]
_TYPES = ["event_type=rare", "event_type=uncommon", "event_type=never", "event_type=bench"]


def _paths() -> list[str]:
    """Every filter; those of deliveries and attempts also with a busy and a quiet endpoint."""
    codes = [f"error_code={one}" for one in ("INVALID_FORMAT", "SERVICE_UNAVAILABLE", "NEVER")]
    shared = ["", *_TYPES, *codes, *_TIMES]
    of_endpoint = ["", *(f"&endpoint_id={{{name}}}" for name in _NAMED)]
    filters = {
        "deliveries": [*shared, *(f"state={one}" for one in DeliveryState), "state=dead&event_type=rare"],
        "attempts": [*shared, "state=succeeded", "state=failed", "state=failed&event_type=uncommon"],
    }
    crossed = [f"{of}?{one}{more}" for of in filters for one in filters[of] for more in of_endpoint]
    statuses = [f"status={one}" for one in EventStatus]
    events = ["", *_TYPES, *_TIMES, *statuses, "status=failed&event_type=uncommon", "status=failed&event_type=never"]
    actors = ["", "actor=often", "actor=seldom", "actor=nobody"]
    audit = [f"{actor}&{more}" for actor in actors for more in ("", "action=retry", "action=key.create", *_TIMES)]
    plain = {"events": events, "audit": audit}
    paths = [*crossed, *(f"{of}?{one}" for of in plain for one in plain[of])]
    return [f"/v1/{path}".replace("?&", "?").rstrip("&?") for path in paths]
