"""R10.3: in every range of /v1/stats, each step agrees with a recount of the rows for exactly that minute or hour."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY, SECOND, Instant, to_iso
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import DeliveryHistory, EventDeliveries
from doorstep.model.rollup import HOUR, MINUTE, TTD_SECONDS
from tests.support.api import Api
from tests.support.loop_receiver import Answer, Receiver
from tests.support.recounting import all_events
from tests.support.scene import Scene, until

RANGES = {"1h": (MINUTE, 60), "6h": (MINUTE, 360), "24h": (MINUTE, 1_440), "7d": (HOUR, 168), "30d": (HOUR, 720)}
PAUSES = (9 * DAY, 2 * DAY + 7 * HOUR, 26 * HOUR, 5 * HOUR + 13 * MINUTE, 70 * MINUTE, 59 * MINUTE, 25 * MINUTE, MINUTE)
"""Chosen so that each range contains something that the next shorter one does not."""
POLICY = [120, 600]
_S = DeliveryState


@pytest.fixture
async def scene(database_url: str, receiver: Receiver) -> AsyncIterator[Scene]:
    """A scene in which nothing is cleaned away."""
    made = Scene(database_url, receiver)
    await made.open(retention_days=90)
    yield made
    await made.close()


async def test_each_step_of_every_range_is_what_the_rows_say_of_it(scene: Scene, api: Api) -> None:
    chance = random.Random(10)
    scene.receiver.answer = lambda _: Answer(chance.choice([200, 200, 200, 503, 503, 400]))
    endpoints = [await scene.endpoint(f"/{name}", policy=POLICY) for name in ("one", "other")]
    for pause in PAUSES:
        await live(scene, endpoints, chance)
        scene.leap_to(within_a_minute(scene.clock.now() + pause))
    await live(scene, endpoints, chance)
    moments, reports = await told(scene, api, endpoints)
    for (endpoint_id, name), report in reports.items():
        seen = [one for one in moments if endpoint_id in (None, one.endpoint_id)]
        check(report, name, seen, scene.clock.now(), whole=endpoint_id is None)
    at = {one.at // HOUR for one in moments}
    assert len(at) >= sum(pause > HOUR for pause in PAUSES), "the story is about several hours"


async def live(scene: Scene, endpoints: list[Endpoint], chance: random.Random) -> None:
    """Send a few events to each endpoint, and wait until nothing is due. All of it happens within one minute."""
    for endpoint in endpoints:
        await scene.send_to(endpoint, chance.randint(2, 5))

    async def over() -> bool:
        lanes = await scene.doorstep.components.store.due_lanes(scene.clock.now())
        return not await scene.count(_S.IN_PROGRESS) and all(lane.due_at > scene.clock.now() for lane in lanes)

    await until(over, "rest")


Reports = dict[tuple[UUID | None, str], dict[str, Any]]
"""Reports by endpoint (None for all) and range."""


async def told(scene: Scene, api: Api, endpoints: list[Endpoint]) -> tuple[list[Moment], Reports]:
    """The recounted rows and all reports. Read again if something happened meanwhile: a circuit may close late."""
    ids = None, *(one.endpoint_id for one in endpoints)
    asked = {(one, name): f"range={name}" + (f"&endpoint_id={one}" if one else "") for one in ids for name in RANGES}
    for _ in range(20):
        moments = await recounted(scene)
        reports = {key: (await api.get(f"/v1/stats?{query}")).json["report"] for key, query in asked.items()}
        if moments == await recounted(scene):
            return moments, reports
    raise AssertionError("it never came to rest")


def within_a_minute(at: Instant) -> Instant:
    """A time far enough from both ends of its minute for one round of activity."""
    return at - at % MINUTE + 15 * SECOND


# -- the rows ----------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """One thing that happened, with the names of the figures that count it."""

    at: Instant
    endpoint_id: UUID
    counts: tuple[str, ...]
    waiting: int
    """The change in the number of waiting deliveries."""
    seconds: float | None = None
    """The time to delivery, for deliveries that succeeded."""


async def recounted(scene: Scene) -> list[Moment]:
    store, found = scene.doorstep.components.store, []
    for event_id in await all_events(store, DEFAULT_ORG):
        (delivery,) = await store.find(DEFAULT_ORG, EventDeliveries(event_id=event_id))
        for line in await store.find(DEFAULT_ORG, DeliveryHistory(delivery_id=delivery.delivery_id)):
            counts = MEANINGS.get((line.old_state, line.new_state), ())
            waiting = (line.old_state is None) - (line.new_state in (_S.DELIVERED, _S.DEAD))
            took = (line.at - delivery.created_at) / SECOND if line.new_state is _S.DELIVERED else None
            found.append(Moment(line.at, delivery.endpoint_id, counts, waiting, took))
    return found


MEANINGS: dict[tuple[DeliveryState | None, DeliveryState], tuple[str, ...]] = {
    (None, _S.PENDING): ("events.created", "deliveries.created"),
    (_S.IN_PROGRESS, _S.DELIVERED): ("events.delivered", "deliveries.delivered", "attempts.succeeded"),
    (_S.IN_PROGRESS, _S.PENDING): ("attempts.retry",),
    (_S.IN_PROGRESS, _S.DEAD): ("events.failed", "deliveries.dead", "attempts.dead"),
}
NAMES = sorted({name for names in MEANINGS.values() for name in names})


# -- both sides --------------------------------------------------------------------------------------------


def check(report: dict[str, Any], name: str, moments: list[Moment], now: Instant, *, whole: bool) -> None:
    step, steps = RANGES[name]
    since = now - now % step - (steps - 1) * step
    assert (report["since"], report["step_seconds"]) == (to_iso(since), step // SECOND)
    counts, spans, waited = defaultdict[str, Counter[int]](Counter), defaultdict[int, list[float]](list), Counter[int]()
    for one in moments:
        place = (one.at - since) // step
        waited[max(place, -1)] += one.waiting
        if place >= 0:
            for counted in one.counts:
                counts[counted][place] += 1
            if one.seconds is not None:
                spans[place].append(one.seconds)
    for counted in NAMES:
        kind, _, outcome = counted.partition(".")
        if whole or kind != "events":
            expected = [counts[counted][place] for place in range(steps)]
            assert report["series"][kind][outcome] == expected, counted
            assert report["sum"][kind][outcome] == sum(expected), counted
    depth = list(accumulate(waited[place] for place in range(-1, steps)))[1:]
    assert report["series"]["queue_depth"] == depth
    check_rates(report, counts["deliveries.delivered"], counts["deliveries.dead"], steps)
    check_times(report["series"]["time_to_delivery"], {place: spans[place] for place in range(steps)})
    together = [one for some in spans.values() for one in some]
    check_times({rank: [value] for rank, value in report["sum"]["time_to_delivery"].items()}, {0: together})


def check_rates(report: dict[str, Any], delivered: Counter[int], dead: Counter[int], steps: int) -> None:
    ends = [(delivered[place], delivered[place] + dead[place]) for place in range(steps)]
    assert report["series"]["success_rate"] == [part / all_ if all_ else None for part, all_ in ends]
    assert report["sum"]["success_rate"] == pytest.approx(sum(delivered.values()) / sum(all_ for _, all_ in ends))


def check_times(told: dict[str, list[float | None]], spans: dict[int, list[float]]) -> None:
    """Check that each percentile is in the bucket of the delivery with that rank."""
    for rank in (50, 95, 99):
        for place, took in spans.items():
            value = told[f"p{rank}"][place]
            assert (value is None) == (not took)
            if value is not None:
                right = sorted(took)[math.ceil(rank / 100 * len(took)) - 1]
                lower, upper = bucket(right)
                assert lower <= value <= upper, (rank, place, right)


def bucket(span: float) -> tuple[float, float]:
    bounds = (0.0, *TTD_SECONDS, math.inf)
    place = bisect_left(TTD_SECONDS, span)
    return bounds[place], bounds[place + 1]
