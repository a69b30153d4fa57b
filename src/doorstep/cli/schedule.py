"""The schedule that a policy means, worked out in full: when each try comes, give or take the jitter."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doorstep.clock import Instant, seconds
from doorstep.model.noun import Noun
from doorstep.model.retry_policy import RetryPolicy


class Try(Noun, frozen=True, kw_only=True):
    """One attempt, if all before it failed at once. A slow failure moves the ones after it back by as much."""

    attempt: int
    delay_seconds: float
    """The pause before it, without jitter."""
    earliest_at: Instant
    planned_at: Instant
    latest_at: Instant
    certain: bool = True
    """False where the deadline lets it happen only if the jitter is kind."""


def schedule(policy: RetryPolicy, accepted_at: Instant) -> tuple[Try, ...]:
    """Every try that the policy allows, the first one included."""
    tries = (_try(policy, number, accepted_at) for number in range(len(policy.delays) + 1))
    deadline = policy.deadline_seconds
    if deadline is None:
        return tuple(tries)
    end = accepted_at + seconds(deadline)
    return tuple(msgspec.structs.replace(one, certain=one.latest_at <= end) for one in tries if one.earliest_at <= end)


def total_seconds(tries: Sequence[Try]) -> float:
    """From the acceptance to the last try as planned."""
    return float(sum(one.delay_seconds for one in tries))


def _try(policy: RetryPolicy, retries: int, accepted_at: Instant) -> Try:
    after = sum(policy.delays[:retries])
    return Try(
        attempt=retries + 1,
        delay_seconds=float(policy.delays[retries - 1]) if retries else 0.0,
        earliest_at=accepted_at + seconds(after * (1 - policy.jitter)),
        planned_at=accepted_at + seconds(after),
        latest_at=accepted_at + seconds(after * (1 + policy.jitter)),
    )
