"""The ordering promise for events with an ordering key."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from itertools import pairwise
from random import Random

import pytest

from doorstep.model.action import ActionKind
from doorstep.model.delivery import DeliveryState
from tests.acceptance.conftest import migrated_url
from tests.support.api import Api
from tests.support.loop_receiver import Answer, Request
from tests.support.scene import Scene, until
from tests.support.shortcuts import count_states
from tests.support.stores import EACH_STORE

KEYS, EVENTS = ("a", "b", "c"), 15


@pytest.fixture(params=EACH_STORE)
def database_url(request: pytest.FixtureRequest) -> str:
    """Both stores, because the database itself does the claiming."""
    return migrated_url(request)


@pytest.mark.parametrize("workers", [1, 3])
async def test_a_receiver_that_fails_at_times_sees_the_events_of_each_key_in_order(scene: Scene, workers: int) -> None:
    for _ in range(workers - 1):
        await scene.open()
    chance = Random(workers)
    scene.receiver.answer = lambda _: Answer(chance.choice((200, 200, 503)))
    await scene.endpoint("/one", policy=[0.0] * 9)
    await scene.endpoint("/other", policy=[0.0] * 9)

    async def send(number: int, key: str) -> None:
        """Send events through alternating processes, each event after the answer to the previous one."""
        for n in range(EVENTS):
            await scene.doorsteps[(number + n) % workers].send("order.paid", {"key": key, "n": n}, ordering_key=key)

    await asyncio.gather(*(send(number, key) for number, key in enumerate(KEYS)))
    await until(lambda: _all_ended(scene), "the end of all")
    assert _sequences(scene) == {(path, key): list(range(EVENTS)) for path in ("/one", "/other") for key in KEYS}


async def _all_ended(scene: Scene) -> bool:
    tally = await count_states(scene.doorstep.components.store)
    return tally[DeliveryState.DELIVERED] == 2 * len(KEYS) * EVENTS


def _sequences(scene: Scene) -> dict[tuple[str, str], list[int]]:
    """The numbers that each path received for each key, in order; immediate repetitions count once."""
    seen: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for request in scene.receiver.requests:
        key, number = _content(request)
        line = seen[request.path, key]
        if line[-1:] != [number]:
            line.append(number)
    return dict(seen)


def _content(request: Request) -> tuple[str, int]:
    body = json.loads(request.body)
    return body["key"], body["n"]


async def test_without_a_key_a_slow_event_holds_up_nobody(scene: Scene) -> None:
    """The control: without an ordering key, the same traffic arrives out of order."""
    scene.receiver.hold.clear()
    await scene.endpoint()
    for n in range(5):
        await scene.send(payload={"n": n})
    await scene.until_received(5)


async def test_what_waits_for_its_turn_says_so_and_has_no_time(scene: Scene, api: Api) -> None:
    scene.receiver.hold.clear()
    await api.endpoint(scene.receiver.url())
    await api.send(ordering_key="customer 7")
    await scene.until_received(1)
    second = await api.send(ordering_key="customer 7")
    waiting = await api.delivery_of(second)
    shown = (await api.get(f"/v1/deliveries/{waiting['delivery_id']}")).json
    assert shown["state"] == "pending"
    assert shown["due_at"] is None and shown["next_retry_at"] is None
    assert shown["held"] == {"reason": "It is waiting for an earlier event with the same ordering key.", "until": None}
    assert (await api.get("/v1/stats")).json["oldest_due_at"] is None
    await scene.nothing_more_arrives()
    scene.receiver.hold.set()
    await api.until_status(second, "delivered")


async def test_a_dead_letter_holds_up_nobody_and_can_be_retried_later(scene: Scene) -> None:
    scene.receiver.says(404, 200)
    await scene.endpoint()
    first, second = [await scene.send(payload={"n": n}, ordering_key="a") for n in (1, 2)]
    await scene.until_state(second, DeliveryState.DELIVERED)
    dead = await scene.until_state(first, DeliveryState.DEAD)
    await scene.act(ActionKind.RETRY, dead)
    scene.leap(6)
    await scene.until_state(first, DeliveryState.DELIVERED)


async def test_skipping_what_holds_a_line_up_lets_the_next_go(scene: Scene) -> None:
    scene.receiver.says(503, 200)
    await scene.endpoint(policy=[3600.0])
    first, second = [await scene.send(ordering_key="a") for _ in range(2)]
    failed = await scene.until_tried(first)
    assert (await scene.delivery(second)).blocked
    await scene.act(ActionKind.SKIP, failed)
    await scene.until_state(second, DeliveryState.DELIVERED)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb"])
async def test_an_ordering_key_that_is_none_is_refused_by_name(api: Api, key: str) -> None:
    answer = await api.post("/v1/events", {"event_type": "a", "payload": 1, "ordering_key": key})
    assert answer.status == 422
    assert [error["field"] for error in answer.json["errors"]] == ["ordering_key"]


async def test_a_line_moves_on_within_milliseconds(scene: Scene) -> None:
    await scene.endpoint()
    await asyncio.gather(*(scene.send(ordering_key="a") for _ in range(50)))
    await scene.until_received(50)
    times = [request.at for request in scene.receiver.requests]
    pauses = sorted(after - before for before, after in pairwise(times))
    print(f"a line of 50: {1000 * (times[-1] - times[0]) / 49:.1f} ms an event, p50 {1000 * pauses[24]:.1f} ms")
    assert pauses[24] < 0.1, "woken, not found by looking twice a second"
