"""When a failed delivery is retried, and when it becomes a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from doorstep.clock import LATEST, SECOND, Instant, seconds
from doorstep.errors import InvalidInput
from doorstep.model.attempt import Category, Code, Outcome
from doorstep.model.claim import Claim, Settlement
from doorstep.model.endpoint import Endpoint, RetryPolicy
from doorstep.model.org import Org
from doorstep.policy.routing import most_specific

_MINUTE, _HOUR = 60, 3_600

BUILT_IN: dict[str, RetryPolicy] = {
    policy.name: policy
    for policy in (
        RetryPolicy(
            (5, 30, 2 * _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, 24 * _HOUR), name="standard", retry_on_recovery=True
        ),
        RetryPolicy((60, 300, 900), jitter=0, name="triggers"),
        RetryPolicy((5, 30, 300), name="quick"),
        RetryPolicy((5, 30, 300), name="exponential"),
        RetryPolicy((5, 5, 5), name="immediate"),
        RetryPolicy((300, 600, 1200), name="carrier"),
        RetryPolicy((5, 30), name="pipeline"),
        # The schedule that the Standard Webhooks specification recommends: about three days in all.
        RetryPolicy(
            (5, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR, 24 * _HOUR),
            name="patient",
            retry_on_recovery=True,
        ),
        RetryPolicy((), name="manual", manual=True),
    )
}

RETRY_AFTER_MIN_SECONDS = 1.0
RETRY_AFTER_MAX_SECONDS = 86_400.0
_LOST_SPREAD, _LOST_SPREAD_GROWTH, _LOST_SPREAD_MAX = SECOND // 4, 16, 60 * SECOND
"""The retries of a lost worker's deliveries are spread over a quarter of a second. If the previous attempt was lost
too, the spread grows sixteenfold with each retry, up to a minute. If all deliveries were due at the same time, one
worker would claim them together again. A payload that kills workers would then turn other deliveries into dead letters:
18 to 31 of 50 in a test. We repeated this test with the spread, running three or four instances in parallel on two
cores. With two retries, one or two deliveries became dead letters in 2 of 16 runs; with three retries, none did in 18
runs."""

Random = Callable[[], float]
"""A function that returns a number in [0, 1), such as random.random."""


def standard_policy(delays: tuple[float, ...] | None) -> RetryPolicy:
    """The policy `standard` of an installation, which may have set other delays."""
    return BUILT_IN["standard"] if delays is None else RetryPolicy(delays, name="standard")


def named(name: str, standard: RetryPolicy = BUILT_IN["standard"]) -> RetryPolicy:
    """A built-in policy by its name; `standard` is the default policy of this installation."""
    known = BUILT_IN | {"standard": standard}
    if name not in known:
        raise InvalidInput("policy", f"there is no policy {name!r}; known are {', '.join(known)}, or give delays")
    return known[name]


def policy_for(endpoint: Endpoint, org: Org | None, event_type: str, default: RetryPolicy) -> RetryPolicy:
    """The most specific policy. The order is: the endpoint's policy for this event type, the endpoint's general policy,
    the organization's policy for this event type, the organization's general policy, the default."""
    return (
        _by_type(endpoint.policy_by_event_type, event_type)
        or endpoint.policy
        or (org and (_by_type(org.policy_by_event_type, event_type) or org.policy))
        or default
    )


def _by_type(policies: Mapping[str, RetryPolicy], event_type: str) -> RetryPolicy | None:
    pattern = most_specific(policies, event_type) if policies else None
    return policies[pattern] if pattern is not None else None


def capped(policy: RetryPolicy, retries_max: int) -> RetryPolicy:
    """The same policy with no more retries than the installation allows."""
    return replace(policy, delays=policy.delays[:retries_max])


def settlement_for(claim: Claim, outcome: Outcome, policy: RetryPolicy, random: Random) -> Settlement:
    """The settlement of an attempt: delivered, due again, waiting for an operator, or a dead letter."""
    if outcome.succeeded:
        return Settlement.delivered(claim, outcome)
    if (due_at := _former_due_at(claim, outcome, policy)) is not None:
        return Settlement.restored(claim, outcome, due_at)
    due_at = next_due_at(claim, outcome, policy, random)
    retries_max = max(len(policy.delays), claim.retry_attempts)
    if due_at is not None:
        return Settlement.retry(claim, outcome, due_at, retries_max, policy.retry_on_recovery)
    if policy.manual and outcome.category is Category.TRANSIENT:
        # An operator's retry counts too, so there is always room for one more.
        return Settlement.held(claim, outcome, max(retries_max, claim.retry_attempts + 1))
    return Settlement.dead(claim, outcome)


def _former_due_at(claim: Claim, outcome: Outcome, policy: RetryPolicy) -> Instant | None:
    """When the delivery was due before an attempt that uses up no retry; None if the attempt counts.

    Probes do not count unless the payload is to blame: the next probe would then follow at once, and could repeat
    forever. Neither do attempts that a recovery brought forward.
    """
    if claim.was_due_at is None or not policy.retry_on_recovery:
        return None
    if outcome.category is Category.PERMANENT or outcome.code == Code.WORKER_LOST:
        return None
    if not claim.early and not (claim.probe and outcome.blames_endpoint):
        return None
    due_at = max(claim.was_due_at, outcome.reply.finished_at)
    return due_at if due_at <= _deadline(claim, policy) else None


def next_due_at(claim: Claim, outcome: Outcome, policy: RetryPolicy, random: Random) -> Instant | None:
    """The time of the next attempt, or None if there is none."""
    if outcome.category is Category.PERMANENT or claim.retry_attempts >= len(policy.delays):
        return None
    now, deadline = outcome.reply.finished_at, _deadline(claim, policy)
    if outcome.code == Code.WORKER_LOST:  # no further delay: the lease had to expire first
        due_at = now + int(min(_lost_spread(claim), deadline - now) * random())
    else:
        due_at = now + _pause(outcome, policy, claim.retry_attempts, random)
    return due_at if due_at <= deadline else None


def _lost_spread(claim: Claim) -> Instant:
    if claim.last_code != Code.WORKER_LOST:
        return _LOST_SPREAD
    longer = int(_LOST_SPREAD * _LOST_SPREAD_GROWTH ** min(claim.retry_attempts, 9))
    return min(longer, _LOST_SPREAD_MAX)


def _pause(outcome: Outcome, policy: RetryPolicy, retries_used: int, random: Random) -> Instant:
    if outcome.retry_after_seconds is not None and not policy.ignore_retry_after:
        # The jitter only adds, so the retry is never earlier than requested. `max` returns its first argument for NaN.
        asked = min(max(RETRY_AFTER_MIN_SECONDS, outcome.retry_after_seconds), RETRY_AFTER_MAX_SECONDS)
        return seconds(asked * (1 + policy.jitter * random()))
    return seconds(policy.delays[retries_used] * (1 + policy.jitter * (2 * random() - 1)))


def _deadline(claim: Claim, policy: RetryPolicy) -> Instant:
    ends = [claim.expires_at] if claim.expires_at is not None else []
    if policy.deadline_seconds is not None and not claim.revived:
        ends.append(claim.owed_at + seconds(policy.deadline_seconds))
    return min(ends, default=LATEST)
