"""Waiting for a delivery or for a bulk operation to finish."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.client import DeliveryFailed, NotFound, Retrying, TimedOut
from doorstep.client.call import Silence
from doorstep.client.events import Sending
from doorstep.client.verbs import Steps
from tests.unit.client.steps import World, answers, ok, refusal

EVENT = "01890a5d-ac96-774b-bcce-b302099a8057"


class Runner:
    """Returns the steps instead of performing them."""

    retrying = Retrying(tries_max=2, random=lambda: 1.0)

    def run(self, steps: Steps[Any], /) -> Any:
        return steps

    def each(self, first: Any, /) -> Any:
        raise NotImplementedError


def waiting(timeout: float) -> Steps[Any]:
    steps: Steps[Any] = Sending(Runner()).wait_for_delivery(EVENT, timeout)
    return steps


def status(name: str) -> Any:
    nothing = dict.fromkeys(("last_retry_at", "failed_at", "next_retry_at"))
    return ok({"event_id": EVENT, "status": name, "retry_attempts": 3, **nothing})


def test_it_returns_as_soon_as_the_event_is_delivered() -> None:
    world = answers(status("received"), status("queued"), status("delivered"))
    assert world.run(waiting(30)).status == "delivered"
    assert len(world.requests) == 3


def test_an_event_that_has_failed_is_an_error_that_shows_where_it_stands() -> None:
    with pytest.raises(DeliveryFailed, match=f"event {EVENT} has failed after 3 retries") as raised:
        answers(status("failed")).run(waiting(30))
    assert raised.value.seen.status == "failed"  # type: ignore[attr-defined]


def test_it_gives_up_when_the_time_is_over_and_shows_what_it_saw_last() -> None:
    world = answers(status("queued"))
    with pytest.raises(TimedOut, match="was not done within 10 s") as raised:
        world.run(waiting(10))
    assert raised.value.seen.status == "queued"  # type: ignore[attr-defined]
    assert world.now == pytest.approx(1_010.0)


def test_the_asking_itself_counts_as_time() -> None:
    world = World([status("queued")], seconds_a_request=4.0)
    with pytest.raises(TimedOut):
        world.run(waiting(10))
    assert len(world.requests) == 3


def test_it_asks_at_least_once() -> None:
    assert answers(status("delivered")).run(waiting(0)).status == "delivered"


def test_it_asks_often_at_first_and_then_every_two_seconds() -> None:
    world = answers(status("queued"))
    with pytest.raises(TimedOut):
        world.run(waiting(60))
    assert world.pauses[0] == 0.05
    assert max(world.pauses) == 2.0
    assert len(world.requests) < 45


def test_a_passing_failure_does_not_end_the_waiting_and_a_lasting_one_does() -> None:
    assert answers(Silence("reset"), status("delivered")).run(waiting(30)).status == "delivered"
    with pytest.raises(NotFound):
        answers(status("queued"), refusal(404)).run(waiting(30))
