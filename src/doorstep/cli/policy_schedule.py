"""What `doorstep policy explain` prints: the exact schedule of a policy, with clock times."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doorstep.cli.options import shown_span, span_seconds
from doorstep.cli.output import Column, Output
from doorstep.clock import SECOND, Instant, seconds, to_iso
from doorstep.config import Settings
from doorstep.errors import ConfigError
from doorstep.model.endpoint import RetryPolicy
from doorstep.model.record import Record
from doorstep.operations.endpoint_rules import policy_from
from doorstep.policy.retry import BUILT_IN, capped

COLUMNS = (
    Column("attempt", "attempt"),
    Column("pause before", lambda one: shown_span(one.delay_seconds) if one.attempt > 1 else None),
    Column("planned (UTC)", lambda one: clock_time(one.planned_at), whole=True),
    Column("earliest", lambda one: clock_time(one.earliest_at), whole=True),
    Column("latest", lambda one: clock_time(one.latest_at), whole=True),
    Column("", lambda one: " " if one.certain else "only if the jitter keeps it within the deadline"),
)


def explain(policy: RetryPolicy, settings: Settings, accepted_at: Instant, output: Output) -> None:
    """Print when each try comes for an event accepted at this instant, if each fails at once."""
    used = capped(policy, settings.max_retry_attempts)
    tries = schedule(used, accepted_at)
    if output.as_json:
        output.json(as_value(used, tries))
        return
    output.text(f"Policy {used.name or 'of its own'}, for an event accepted at {clock_time(accepted_at)} UTC:")
    output.listing(None, tries, COLUMNS, "")
    for sentence in remarks(policy, used, tries):
        output.text(sentence)


def policy_of(words: str, settings: Settings) -> RetryPolicy:
    """The policy that someone typed: a name, or pauses such as `5s,5m,2h`."""
    standard = RetryPolicy(settings.retry_delays, name="standard")
    return policy_from(words if words in BUILT_IN else _delays(words), standard)


def changed(policy: RetryPolicy, jitter: float | None, deadline_seconds: float | None) -> RetryPolicy:
    """The policy with another jitter or deadline, checked as that of an endpoint is."""
    deadline = policy.deadline_seconds if deadline_seconds is None else deadline_seconds
    return policy_from(RetryPolicy(policy.delays, policy.jitter if jitter is None else jitter, deadline, policy.name))


def as_value(policy: RetryPolicy, tries: tuple[Try, ...]) -> dict[str, object]:
    """For programs."""
    return {
        "policy": policy.name or None,
        "delays": policy.delays,
        "jitter": policy.jitter,
        "deadline_seconds": policy.deadline_seconds,
        "total_seconds": total_seconds(tries),
        "attempts": [_try_value(one) for one in tries],
    }


def remarks(policy: RetryPolicy, used: RetryPolicy, tries: tuple[Try, ...]) -> list[str]:
    """What the table does not say."""
    if len(tries) == 1:
        return ["It is tried once and never retried by the machine: after a failure it waits for an operator."]
    total, retries = total_seconds(tries), len(tries) - 1
    told = [f"{len(tries)} attempts ({retries} {'retry' if retries == 1 else 'retries'}) over {shown_span(total)}"]
    if used.jitter and total:
        told[0] += f", {shown_span(total * used.jitter)} sooner or later by the jitter of ±{used.jitter:.0%}"
    told[0] += "; then it is a dead letter."
    if len(used.delays) < len(policy.delays):
        told.append(f"Its {len(policy.delays)} retries are cut to {len(used.delays)} by DOORSTEP_MAX_RETRY_ATTEMPTS.")
    if policy.deadline_seconds is not None:
        told.append(
            f"No retry begins later than {shown_span(policy.deadline_seconds)} after the acceptance, or `deliver_at`."
        )
    told.append("A receiver's Retry-After takes the place of a pause; an attempt's own duration comes on top.")
    return told


def clock_time(instant: Instant) -> str:
    """To the second; with its day, because schedules run over days."""
    return to_iso(instant - instant % SECOND).replace("T", " ").replace(".000000Z", "")


def _try_value(one: Try) -> dict[str, object]:
    return {
        "attempt": one.attempt,
        "delay_seconds": one.delay_seconds,
        "earliest_at": to_iso(one.earliest_at),
        "planned_at": to_iso(one.planned_at),
        "latest_at": to_iso(one.latest_at),
        "certain": one.certain,
    }


def _delays(words: str) -> tuple[float, ...]:
    try:
        return tuple(span_seconds(part) for part in words.split(","))
    except ValueError as error:
        known = ", ".join(BUILT_IN)
        raise ConfigError(f"{words!r} is no policy: known are {known}, or pauses such as 5s,5m,2h ({error})") from None


class Try(Record, frozen=True, kw_only=True):
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
