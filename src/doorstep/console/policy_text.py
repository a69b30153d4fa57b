"""Retry policies as people read and write them: a name, or pauses such as `5s, 5m, 2h`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from doorstep.clock import Instant, seconds
from doorstep.console.formatting import lasting
from doorstep.errors import InvalidInput
from doorstep.model.endpoint import Endpoint, RetryPolicy
from doorstep.model.org import Org
from doorstep.operations.endpoint_rules import PolicyForm
from doorstep.policy.retry import BUILT_IN, capped

_JITTER = RetryPolicy(()).jitter
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)?")


class InForce(NamedTuple):
    """A policy that counts for some of an endpoint's event types."""

    event_types: str
    policy: RetryPolicy
    whence: str


def in_force(endpoint: Endpoint, org: Org | None, standard: RetryPolicy, retries_max: int) -> list[InForce]:
    """All that count for an endpoint, the most specific first."""
    found = _in_force(endpoint, org, standard)
    return [one._replace(policy=capped(one.policy, retries_max)) for one in found]


def _in_force(endpoint: Endpoint, org: Org | None, standard: RetryPolicy) -> Iterator[InForce]:
    yield from _by_type(endpoint.policy_by_event_type, "its own")
    if endpoint.policy is not None:
        yield InForce(_REST, endpoint.policy, "its own")
        return
    if org is not None:
        yield from _by_type(org.policy_by_event_type, "the organization’s")
        if org.policy is not None:
            yield InForce(_REST, org.policy, "the organization’s")
            return
    yield InForce(_REST, standard, "the installation’s")


_REST = "*"


def _by_type(policies: Mapping[str, RetryPolicy], whence: str) -> Iterator[InForce]:
    for pattern, policy in sorted(policies.items(), key=lambda one: (-len(one[0]), one[0])):
        yield InForce(pattern, policy, whence)


# -- to read -----------------------------------------------------------------------------------------------------


def in_words(policy: RetryPolicy) -> str:
    """`At once, then after 1 min, 5 min and 15 min: 4 attempts within 21 min. Pauses vary by 10%.`"""
    if not policy.delays:
        return "Tried once. Nothing is retried by itself; failures wait for an operator."
    attempts = f"{len(policy.delays) + 1} attempts"
    if not any(policy.delays):
        return f"{attempts}, one right after the other." + _deadline(policy)
    pauses = [_span(delay) for delay in policy.delays]
    whole = _span(sum(policy.delays))
    vary = f" Pauses vary by {policy.jitter:.0%}." if policy.jitter else ""
    return f"At once, then after {_listed(pauses)}: {attempts} within {whole}.{vary}{_deadline(policy)}"


def _deadline(policy: RetryPolicy) -> str:
    if policy.deadline_seconds is None:
        return ""
    return f" None later than {_span(policy.deadline_seconds)} after the event was owed."


def _listed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _span(span_seconds: float) -> str:
    span: Instant = seconds(span_seconds)
    return lasting(span) if span else "no pause"


# -- to write ----------------------------------------------------------------------------------------------------


def policy_text(policy: RetryPolicy) -> str:
    """As `policy_from_text` reads it."""
    if BUILT_IN.get(policy.name) == policy:
        return policy.name
    jitter = "" if policy.jitter == _JITTER else f"; jitter {100 * policy.jitter:.12g}%"
    deadline = "" if policy.deadline_seconds is None else f"; deadline {span_text(policy.deadline_seconds)}"
    return f"{delays_text(policy)}{jitter}{deadline}"


def policy_from_text(field: str, text: str) -> PolicyForm:
    """A name, or pauses with what else there is to say: `5s, 5m, 2h; jitter 20%; deadline 1d`."""
    delays, *rest = (part.strip() for part in text.split(";"))
    if delays in BUILT_IN and not rest:
        return delays
    said = dict(_said(field, part) for part in rest)
    return RetryPolicy(
        delays_from_text(field, delays),
        said.get("jitter", _JITTER),
        said.get("deadline"),
    )


def _said(field: str, part: str) -> tuple[str, float]:
    name, _, value = part.partition(" ")
    if name not in ("jitter", "deadline"):
        raise InvalidInput(field, f"{part[:40]!r} says nothing here; known are jitter and deadline")
    return name, span_from_text(field, value) if name == "deadline" else _jitter(field, value)


def _jitter(field: str, text: str) -> float:
    """`20%`, or `0.2`."""
    number = text.strip().removesuffix("%")
    try:
        return round(float(number) / (100 if number != text.strip() else 1), 12)
    except ValueError:
        raise InvalidInput(field, f"{text[:40]!r} is no jitter; write a share such as 20%") from None


def delays_text(policy: RetryPolicy) -> str:
    return ", ".join(map(span_text, policy.delays))


def delays_from_text(field: str, text: str) -> tuple[float, ...]:
    """Nothing is a policy too: it never retries."""
    return tuple(span_from_text(field, part) for part in re.split(r"[,\s]+", text.strip()) if part)


def span_text(span_seconds: float) -> str:
    """In the largest unit in which it is whole: `5m`, `90s`."""
    for unit, size in _UNITS.items():
        if span_seconds >= size and span_seconds % size == 0:
            return f"{span_seconds / size:.15g}{unit}"
    return f"{span_seconds:.15g}s"


def span_from_text(field: str, text: str) -> float:
    """Seconds: `5`, `5s`, `5m`, `2h`, `1d`."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidInput(field, f"{text[:40]!r} is no span of time; write 30s, 5m, 2h, 1d or seconds")
    return float(found[1]) * _UNITS[(found[2] or "s")[0]]
