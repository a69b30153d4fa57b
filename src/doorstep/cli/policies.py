"""`doorstep policy explain`: the exact schedule of a retry policy, with clock times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, NamedTuple

import msgspec
import typer

from doorstep.cli.commands import connect, find_endpoint, local
from doorstep.cli.options import (
    DurationSeconds,
    Key,
    Past,
    Share,
    Url,
    option,
    policy_or_delays,
    settings_from,
    without_none,
)
from doorstep.cli.output import Column, Output, duration
from doorstep.clock import SECOND, AnchoredClock, Instant, from_datetime, seconds, to_iso
from doorstep.config import Settings
from doorstep.errors import ConfigError
from doorstep.model.endpoint import RetryPolicy
from doorstep.model.record import Record
from doorstep.policy.retry import BUILT_IN, capped, named, standard_policy
from doorstep.policy.routing import most_specific
from doorstep.schemas.endpoints import Circuit

policy = typer.Typer()


@local(policy)
def explain(
    output: Output,
    policy: Annotated[
        str | None,
        typer.Argument(
            metavar="POLICY",
            autocompletion=lambda incomplete: [name for name in BUILT_IN if name.startswith(incomplete)],
            help=f"The name of a policy ({', '.join(BUILT_IN)}), or its delays: 5s,5m,2h.",
        ),
    ] = None,
    endpoint: Annotated[
        str | None, option("--endpoint", "ENDPOINT", "Explain the policy of this endpoint, by id or name.")
    ] = None,
    event_type: Annotated[
        str | None, option("--type", "TYPE", "With --endpoint: the policy for this event type.")
    ] = None,
    jitter: Annotated[float | None, option("--jitter", "SHARE", "Use another jitter: 20%", Share)] = None,
    deadline: Annotated[float | None, option("--deadline", "SPAN", "Use another deadline: 2d", DurationSeconds)] = None,
    accepted: Annotated[
        datetime | None, option("--accepted", "TIME", "When the event is accepted. [default: now]", Past)
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Print the exact schedule: the time of each attempt, how far jitter can shift it, and the total duration; with
    --endpoint, also the time of the next probe if its circuit is open.

    Examples: `doorstep policy explain patient`, `doorstep policy explain 5s,5m,2h --deadline 1d`,
    `doorstep policy explain --endpoint shop`
    """
    from doorstep.operations.endpoint_rules import policy_from

    settings = settings_from(url=url, api_key=key)
    changes = without_none({"jitter": jitter, "deadline_seconds": deadline})
    plan = _chosen(policy, endpoint, event_type, settings)
    plan = plan._replace(policy=policy_from(msgspec.structs.replace(plan.policy, **changes)))
    _print(plan, settings, AnchoredClock().now() if accepted is None else from_datetime(accepted), output)


# -- the policy --------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    policy: RetryPolicy
    circuit: Circuit | None = None
    """The circuit of the endpoint; None if no endpoint was given."""

    @property
    def next_probe_at(self) -> datetime | None:
        """When the endpoint is probed next, or by when the present probe ends; None while its circuit is closed."""
        return None if self.circuit is None or self.circuit.state == "closed" else self.circuit.until


def _chosen(text: str | None, endpoint: str | None, event_type: str | None, settings: Settings) -> Plan:
    """The policy to explain. The delays of `standard`, which endpoints without a policy use, come from the settings of
    this machine."""
    standard = standard_policy(settings.own_retry_delays)
    if text is not None and endpoint is None:
        return Plan(_from_text(text, standard))
    if endpoint is not None and text is None:
        return _of_endpoint(endpoint, event_type, settings, standard)
    raise ConfigError("policy explain needs either a policy or --endpoint")


def _from_text(text: str, standard: RetryPolicy) -> RetryPolicy:
    try:
        form = policy_or_delays(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return named(form, standard) if isinstance(form, str) else RetryPolicy(tuple(form))


def _of_endpoint(id_or_name: str, event_type: str | None, settings: Settings, standard: RetryPolicy) -> Plan:
    with connect(settings) as client:
        found = find_endpoint(client, id_or_name)
        circuit = client.endpoints.circuit(found.endpoint_id)
    pattern = most_specific(found.policy_by_event_type, event_type) if event_type else None
    policy = found.policy if pattern is None else found.policy_by_event_type[pattern]
    return Plan(standard if policy is None else RetryPolicy(**msgspec.structs.asdict(policy)), circuit)


# -- its schedule ------------------------------------------------------------------------------------------


class Attempt(Record, frozen=True, kw_only=True):
    """One attempt, assuming that all earlier attempts failed immediately. A slow failure delays all later attempts."""

    attempt: int
    delay_seconds: float
    """The delay before this attempt, without jitter."""
    earliest_at: Instant
    planned_at: Instant
    latest_at: Instant
    certain: bool
    """False if jitter may move the attempt past the deadline."""


def schedule(policy: RetryPolicy, accepted_at: Instant) -> tuple[Attempt, ...]:
    """Every attempt that the policy allows, including the first."""
    end = math.inf if policy.deadline_seconds is None else accepted_at + seconds(policy.deadline_seconds)
    attempts = (_attempt(policy, retries, accepted_at, end) for retries in range(len(policy.delays) + 1))
    return tuple(one for one in attempts if one.earliest_at <= end)


def _attempt(policy: RetryPolicy, retries: int, accepted_at: Instant, end: float) -> Attempt:
    after = sum(policy.delays[:retries])
    latest_at = accepted_at + seconds(after * (1 + policy.jitter))
    return Attempt(
        attempt=retries + 1,
        delay_seconds=float(policy.delays[retries - 1]) if retries else 0.0,
        earliest_at=accepted_at + seconds(after * (1 - policy.jitter)),
        planned_at=accepted_at + seconds(after),
        latest_at=latest_at,
        certain=latest_at <= end,
    )


def total_seconds(attempts: Sequence[Attempt]) -> float:
    """The time from acceptance to the last planned attempt."""
    return float(sum(one.delay_seconds for one in attempts))


# -- output ------------------------------------------------------------------------------------------------

_COLUMNS = (
    Column("attempt", "attempt"),
    Column("pause before", lambda one: duration(one.delay_seconds) if one.attempt > 1 else None),
    Column("planned (UTC)", lambda one: _clock_time(one.planned_at), whole=True),
    Column("earliest", lambda one: _clock_time(one.earliest_at), whole=True),
    Column("latest", lambda one: _clock_time(one.latest_at), whole=True),
    Column("", lambda one: " " if one.certain else "only if the jitter keeps it within the deadline"),
)


def _print(plan: Plan, settings: Settings, accepted_at: Instant, output: Output) -> None:
    used = capped(plan.policy, settings.max_retry_attempts)
    attempts = schedule(used, accepted_at)
    if output.as_json:
        output.json(_as_json(used, plan, attempts))
        return
    output.text(f"Policy {used.name or '(custom)'}, for an event accepted at {_clock_time(accepted_at)} UTC:")
    output.listing(None, attempts, _COLUMNS, "")
    for sentence in _remarks(plan, used, attempts):
        output.text(sentence)


def _as_json(policy: RetryPolicy, plan: Plan, attempts: tuple[Attempt, ...]) -> dict[str, object]:
    times = ("earliest_at", "planned_at", "latest_at")
    return {
        "policy": policy.name or None,
        "delays": policy.delays,
        "jitter": policy.jitter,
        "deadline_seconds": policy.deadline_seconds,
        "retry_on_recovery": policy.retry_on_recovery,
        "manual": policy.manual,
        "next_probe_at": plan.next_probe_at,
        "total_seconds": total_seconds(attempts),
        "attempts": [
            msgspec.structs.asdict(one) | {name: to_iso(getattr(one, name)) for name in times} for one in attempts
        ],
    }


def _remarks(plan: Plan, used: RetryPolicy, attempts: tuple[Attempt, ...]) -> Iterator[str]:
    """The sentences printed below the table."""
    yield _summary(used, attempts)
    if len(attempts) > 1:
        if len(used.delays) < len(plan.policy.delays):
            yield f"Its {len(plan.policy.delays)} retries are cut to {len(used.delays)} by DOORSTEP_MAX_RETRY_ATTEMPTS."
        if used.deadline_seconds is not None:
            yield (
                f"No retry starts later than {duration(used.deadline_seconds)} after acceptance, or after `deliver_at`."
            )
        yield "A receiver's Retry-After replaces a delay; the duration of an attempt adds to it."
    if used.retry_on_recovery:
        yield "If the endpoint's circuit opens, retries are brought forward when the receiver is back."
    if plan.next_probe_at is not None and plan.circuit is not None:
        at = _clock_time(from_datetime(plan.next_probe_at))
        if plan.circuit.state == "half_open":
            yield f"The endpoint's circuit is half-open: a probe is in progress, and ends by {at} UTC."
        else:
            yield f"The endpoint's circuit is open: nothing is attempted before the next probe, at {at} UTC."


def _summary(used: RetryPolicy, attempts: tuple[Attempt, ...]) -> str:
    end = "it waits for an operator" if used.manual else "it becomes a dead letter"
    if len(attempts) == 1:
        return f"It is tried once and never retried automatically: after a failure, {end}."
    total, retries = total_seconds(attempts), len(attempts) - 1
    tries = f"{len(attempts)} attempts ({retries} {'retry' if retries == 1 else 'retries'}) over {duration(total)}"
    if used.jitter and total:
        tries += f", {duration(total * used.jitter)} sooner or later by the jitter of ±{used.jitter:.0%}"
    return f"{tries}; then {end}."


def _clock_time(instant: Instant) -> str:
    """The date and time to the second. The date is included because schedules can run for days."""
    return to_iso(instant - instant % SECOND).replace("T", " ").replace(".000000Z", "")
