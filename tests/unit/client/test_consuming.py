"""Consuming the inbox: what a consumer does with each event, and when it pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from doorstep.client.call import Silence
from doorstep.client.events import Inbox
from doorstep.client.verbs import Steps
from doorstep.schemas.inbox import LeasedEvent
from tests.unit.client.steps import World, answers, ok
from tests.unit.client.test_waiting import Runner


def event(number: int) -> dict[str, Any]:
    times = dict.fromkeys(("last_retry_at", "failed_at", "next_retry_at", "leased_by", "visible_at"))
    return times | {
        "event_id": f"01890a5d-ac96-774b-bcce-{number:012d}",
        "status": "received",
        "event_type": "polled",
        "created_at": "2026-01-31T12:00:00Z",
        "correlation_id": "",
        "user_id": None,
        "payload": number,
        "metadata": {},
        "lease_token": 1,
        **dict.fromkeys(("retry_attempts", "deliveries"), 0),
        "receive_count": 1,
    }


def leased(*numbers: int) -> Any:
    return ok({"events": [event(number) for number in numbers]})


def results(*numbers: int) -> Any:
    return ok(
        {"events": [{"event_id": event(n)["event_id"], "result": "acknowledged", "refusal": None} for n in numbers]}
    )


def consume(world: World, handle: Callable[[LeasedEvent], object], **options: Any) -> int:
    steps: Steps[int] = Inbox(Runner()).consume(handle, until_empty=True, **options)
    return world.run(steps)


def told(world: World) -> list[tuple[str, list[int]]]:
    """The answers that the consumer sent: the route, and the payloads of the events."""
    sent = [(call.route, msgspec.json.decode(call.content or b"")) for call in world.requests]
    return [
        (route.rpartition("/")[2], [int(one["event_id"][-12:]) for one in body["events"]])
        for route, body in sent
        if "events" in body
    ]


def test_each_batch_is_acknowledged_in_one_request_after_it_was_handled() -> None:
    world, seen = answers(leased(1, 2), results(1, 2), leased(3), results(3), leased()), list[Any]()
    assert consume(world, lambda one: seen.append(one.payload)) == 3
    assert seen == [1, 2, 3]
    assert told(world) == [("ack", [1, 2]), ("ack", [3])]


def test_what_the_handler_did_not_manage_is_given_back_and_the_rest_goes_on() -> None:
    def handle(one: LeasedEvent) -> None:
        if one.payload == 1:
            raise ValueError("no")

    world = answers(leased(1, 2), results(2), results(1), leased())
    assert consume(world, handle, retry_seconds=7) == 1
    assert told(world) == [("ack", [2]), ("nack", [1])]
    assert msgspec.json.decode(world.requests[2].content or b"")["delay_seconds"] == 7


def test_events_whose_lease_has_ended_are_left_to_others() -> None:
    world, seen = answers(leased(1, 2, 3), results(1, 2), leased()), list[Any]()

    def handle(one: LeasedEvent) -> None:
        seen.append(one.payload)
        world.now += 5

    assert consume(world, handle, visibility_seconds=10) == 2
    assert (seen, told(world)) == ([1, 2], [("ack", [1, 2])])


def test_the_lease_counts_from_before_the_request_because_its_answer_may_be_slow() -> None:
    world, seen = answers(leased(1), leased()), list[Any]()
    world.seconds_a_request = 10
    assert consume(world, lambda one: seen.append(one.payload), visibility_seconds=10) == 0
    assert (seen, told(world)) == ([], [])


def test_an_empty_inbox_is_asked_again_after_growing_pauses() -> None:
    world = answers(*[leased()] * 7, leased(1), results(1), leased())

    class Stop(BaseException):
        pass

    def handle(_: LeasedEvent) -> None:
        raise Stop

    with pytest.raises(Stop):
        world.run(Inbox(Runner()).consume(handle))
    assert world.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_a_server_that_is_away_for_a_moment_does_not_end_the_consumer() -> None:
    world = answers(Silence("gone"), leased(1), Silence("gone"), results(1), leased())
    assert consume(world, lambda _: None) == 1
