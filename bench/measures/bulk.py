"""A bulk retry of 100,000 dead letters while new events arrive for the same endpoint and for another endpoint.

The bulk retry is paused and resumed. A second bulk retry is cancelled midway. Afterwards, the database and the receiver
are checked for what happened to each dead letter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.operation import Operation
from bench.past import add_dead
from bench.receiver import Receiver
from bench.serving import Serving
from bench.setting import Setting
from bench.stock import Wanted, stock
from bench.timing import percentile
from bench.traffic import Traffic
from doorstep.clock import DAY

NONE = at_most(0.0)
PAUSE_TARGET = at_most(1_000.0)
FRESH_TARGET = at_most(2.0)
"""The same target as with a dead endpoint (fairness.py): new events must not be delayed much."""
_SAME, _OTHER = "bench", "other"
"""The event types of the new events. The dead letters are for the endpoint of the first type."""
_FRESH_PER_SECOND = 40
"""New events per second: 20 for each of the two endpoints."""
_PAUSE_SECONDS = 2.0


def measure(setting: Setting) -> Iterator[Figure]:
    letters = setting.scaled(100_000, 5_000)
    for store in setting.stores:
        yield from _retry_all(setting, store, letters)
        yield from _cancel_midway(setting, store, letters // 10)


# -- all of them, with a pause -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """The result of a bulk retry of all dead letters."""

    seconds: float
    """The duration without the pause."""
    paused_at: int
    resumed_at: int
    """The time on the machine's monotonic clock, in nanoseconds."""
    sent: int
    """The number of new events during the operation."""
    arrived: Mapping[str, int]
    """When each event arrived, for both dead letters and new events."""
    requests: int
    """The number of requests that arrived. It exceeds the number of events if any event arrived twice."""
    waits_ms: Mapping[str, list[float]]
    """The milliseconds from request to arrival of the new events, by event type."""


def _retry_all(setting: Setting, store: StoreName, letters: int) -> Iterator[Figure]:
    with setting.databases.fresh(store) as database:
        rows = _prepare(setting, database, letters)
        ids = _event_ids(database, rows)
        with Serving(database) as serving:
            calm = _calm(serving, setting.receiver, setting.scaled(20, 5))
            course = _run(serving, setting.receiver, ids)
        rate = f"{letters / course.seconds:,.0f} a second, with {_FRESH_PER_SECOND} new events a second"
        yield Figure(f"{store}: {letters:,} dead letters retried in", course.seconds, "s", note=rate)
        astray = _astray(database, rows) + abs(course.requests - letters - course.sent)
        yield Figure(f"{store}: letters not retried exactly once", astray, "", NONE)
        yield Figure(f"{store}: from pause to the last letter", _pause_ms(ids, course), "ms", PAUSE_TARGET)
        yield from _fresh_figures(store, calm, course.waits_ms)


def _fresh_figures(
    store: StoreName, calm: Mapping[str, list[float]], busy: Mapping[str, list[float]]
) -> Iterator[Figure]:
    for words, event_type in (("the same endpoint", _SAME), ("another endpoint", _OTHER)):
        for when, waits in (("without bulk retry", calm[event_type]), ("with it", busy[event_type])):
            note = f"p50 {percentile(waits, 0.5):.1f} ms, N={len(waits):,}"
            yield Figure(f"{store}: new events to {words}, p99 {when}", percentile(waits, 0.99), "ms", note=note)
        ratio = percentile(busy[event_type], 0.99) / percentile(calm[event_type], 0.99)
        yield Figure(f"{store}: new events to {words}, with ÷ without", ratio, "×", FRESH_TARGET)


def _prepare(setting: Setting, database: Database, letters: int) -> range:
    url = setting.receiver.url("stamp")
    stock(database, Wanted(url, event_type=_SAME), Wanted(url, event_type=_OTHER))
    return add_dead(database, letters, time.time_ns() // 1_000 - DAY)


def _event_ids(database: Database, rows: range) -> list[str]:
    return [
        str(uid) for uid in database.ids(f"SELECT uid FROM doorstep_events WHERE id BETWEEN {rows[0]} AND {rows[-1]}")
    ]


def _calm(serving: Serving, receiver: Receiver, seconds: float) -> dict[str, list[float]]:
    with Traffic(serving.port, [_SAME, _OTHER], _FRESH_PER_SECOND) as traffic:
        time.sleep(seconds)
    return traffic.waits_ms(receiver.await_arrivals(traffic.sent))


def _run(serving: Serving, receiver: Receiver, letters: Sequence[str]) -> Course:
    before = receiver.count()
    with Traffic(serving.port, [_SAME, _OTHER], _FRESH_PER_SECOND) as traffic:
        started = time.monotonic()
        operation = Operation.retry_all(serving.port)
        operation.await_taken(len(letters) // 4)
        paused_at = time.monotonic_ns()
        operation.steer("pause")
        time.sleep(_PAUSE_SECONDS)
        resumed_at = time.monotonic_ns()
        operation.steer("resume")
        operation.await_end()
        seconds = time.monotonic() - started - (resumed_at - paused_at) / 1e9
    arrived = receiver.await_arrivals([*letters, *traffic.sent])
    requests = receiver.count() - before
    return Course(seconds, paused_at, resumed_at, len(traffic.sent), arrived, requests, traffic.waits_ms(arrived))


def _astray(database: Database, letters: range) -> int:
    """How many dead letters were not retried by exactly one action and delivered on their second and last attempt."""
    ((retried,),) = database.ask(_RETRIED_ONCE.format(first=letters[0], last=letters[-1]))
    return len(letters) - retried


_RETRIED_ONCE = """
SELECT count(*) FROM doorstep_deliveries d
WHERE d.id BETWEEN {first} AND {last} AND d.state = 'delivered' AND d.attempt = 2
    AND (SELECT count(*) FROM doorstep_attempts a WHERE a.delivery_id = d.id) = 2
    AND (SELECT count(*) FROM doorstep_history h WHERE h.delivery_id = d.id AND h.note LIKE 'retried by %') = 1
"""


def _pause_ms(letters: Sequence[str], course: Course) -> float:
    """How long after the pause command the last dead letter arrived."""
    arrivals = (course.arrived[event_id] for event_id in letters)
    last = max(at for at in arrivals if at < course.resumed_at)
    return max(0.0, (last - course.paused_at) / 1e6)


# -- cancelled midway --------------------------------------------------------------------------------------


def _cancel_midway(setting: Setting, store: StoreName, letters: int) -> Iterator[Figure]:
    with setting.databases.fresh(store) as database:
        rows = _prepare(setting, database, letters)
        with Serving(database) as serving:
            operation = Operation.retry_all(serving.port)
            operation.await_taken(letters // 2)
            operation.steer("cancel")
            end = operation.await_end()
            arrived = setting.receiver.take_arrivals().keys() & set(_event_ids(database, rows))
        ((dead,),) = database.ask(_DEAD.format(first=rows[0], last=rows[-1]))
    note = f"{end['taken']:,} of {letters:,} were retried, {len(arrived):,} arrived, {dead:,} are still dead"
    wrong = abs(letters - end["taken"] - dead) + abs(len(arrived) - end["taken"])
    yield Figure(f"{store}: wrong dead letters after a cancel midway", wrong, "", NONE, note)


_DEAD = (
    "SELECT count(*) FROM doorstep_deliveries WHERE id BETWEEN {first} AND {last} AND state = 'dead' AND attempt = 1"
)
