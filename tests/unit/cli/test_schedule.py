"""The schedule shown for a policy is the schedule that the engine follows."""

from __future__ import annotations

import pytest

from doorstep.cli.policies import schedule, total_seconds
from doorstep.clock import SECOND
from doorstep.model.attempt import Category, Outcome, Reply
from doorstep.model.endpoint import RetryPolicy
from doorstep.policy.retry import BUILT_IN, next_due_at
from tests.support.builders import a_claim

START = 1_700_000_000 * SECOND


def the_engine_says(policy: RetryPolicy, chance: float) -> list[int]:
    """The start times of all attempts as the engine schedules them, if each attempt fails immediately."""
    times, at = [START], START
    while True:
        used = a_claim(retry_attempts=len(times) - 1, accepted_at=START)
        outcome = Outcome(reply=Reply(started_at=at, finished_at=at), category=Category.TRANSIENT, code="X")
        due_at = next_due_at(used, outcome, policy, lambda: chance)
        if due_at is None:
            return times
        at = due_at
        times.append(at)


@pytest.mark.parametrize("policy", BUILT_IN.values(), ids=BUILT_IN)
def test_the_times_are_those_that_the_engine_would_choose(policy: RetryPolicy) -> None:
    tries = schedule(policy, START)
    assert [one.planned_at for one in tries] == the_engine_says(policy, 0.5)
    assert [one.earliest_at for one in tries] == the_engine_says(policy, 0.0)
    latest = the_engine_says(policy, 0.999_999_999)
    assert all(abs(one.latest_at - time) < SECOND for one, time in zip(tries, latest, strict=True))


@pytest.mark.parametrize("deadline", [0, 59, 61, 100, 341, 420, 10_000])
def test_a_deadline_ends_the_schedule_where_the_engine_ends_it(deadline: float) -> None:
    policy = RetryPolicy((60, 300, 900), deadline_seconds=deadline)
    tries = schedule(policy, START)
    assert len(tries) == len(the_engine_says(policy, 0.0))
    assert sum(one.certain for one in tries) == len(the_engine_says(policy, 0.999_999_999))


def test_attempts_are_numbered_from_one_and_the_total_is_the_sum_of_the_pauses() -> None:
    tries = schedule(RetryPolicy((60, 300, 900)), START)
    assert [one.attempt for one in tries] == [1, 2, 3, 4]
    assert total_seconds(tries) == 1_260
