"""Where the parts of a delivery's life are drawn, to scale. Pure; places are in percent of the width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from doorstep.clock import Instant
from doorstep.console.scale import Bar, Mark, Scale, wide
from doorstep.console.waiting import Wait
from doorstep.console.words import exactly, lasting
from doorstep.model.attempt import Attempt


class Timeline(NamedTuple):
    waits: tuple[Bar, ...]
    tries: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    now: float | None
    """Where the present is, if what is shown reaches beyond it."""
    label: str
    """All of it in a sentence, for those who do not see it."""


def timeline(
    begin: Instant, waits: Sequence[Wait], attempts: Sequence[Attempt], running_since: Instant | None, now: Instant
) -> Timeline:
    """From the acceptance to the last thing that is known, which may be a try in the future."""
    ends = [wait.end for wait in waits] + [one.finished_at for one in attempts]
    end = max([begin + 1_000, *ends, *([now] if running_since is not None else [])])
    scale = Scale(begin, end)
    tries = [_try(scale, one) for one in attempts]
    if running_since is not None:
        title = f"Being tried since {exactly(running_since)}"
        tries.append(wide(scale.bar(running_since, now, "running", title)))
    return Timeline(
        waits=tuple(scale.bar(one.begin, one.end, one.kind, _waited(one)) for one in waits),
        tries=tuple(tries),
        marks=scale.marks(),
        now=scale.x(now) if begin < now < end else None,
        label=_in_words(attempts, waits, end - begin),
    )


def _try(scale: Scale, one: Attempt) -> Bar:
    title = f"Attempt {one.number}: {outcome_of(one)}, {lasting(one.finished_at - one.started_at)}"
    return wide(scale.bar(one.started_at, one.finished_at, tone_of(one), f"{title}\n{exactly(one.started_at)}"))


def _waited(wait: Wait) -> str:
    return f"{wait.why}: {lasting(wait.end - wait.begin)}\nfrom {exactly(wait.begin)}\nuntil {exactly(wait.end)}"


def _in_words(attempts: Sequence[Attempt], waits: Sequence[Wait], span: Instant) -> str:
    held = sum(wait.end - wait.begin for wait in waits if wait.kind == "held")
    tried = f"{len(attempts)} attempt{'' if len(attempts) == 1 else 's'} in {lasting(span)}"
    return f"{tried}, held for {lasting(held)}" if held else tried


# -- one attempt -------------------------------------------------------------------------------------------


def outcome_of(attempt: Attempt) -> str:
    if attempt.late:
        return "too late to count"
    return "delivered" if attempt.category is None else attempt.code or "failed"


def tone_of(attempt: Attempt) -> str:
    if attempt.late:
        return "late"
    return "delivered" if attempt.category is None else "failed"


def parts(attempt: Attempt, longest: Instant) -> tuple[Bar, ...]:
    """What one attempt spent its time on, on a scale that ends at `longest`."""
    scale = Scale(0, max(1, longest))
    bars, reached = [], 0
    for kind, name, until in _phases(attempt):
        if until > reached:
            bars.append(scale.bar(reached, until, kind, f"{name}: {lasting(until - reached)}"))
            reached = until
    return tuple(bars)


def _phases(attempt: Attempt) -> Iterator[tuple[str, str, Instant]]:
    """The parts in their order, each with when it ended; 0 for one that there was none of. Where no answer came, what
    curl takes for a first byte was none."""
    timings, whole = attempt.timings, attempt.finished_at - attempt.started_at
    answered = attempt.response_code is not None
    yield "dns", "DNS", min(timings.dns, whole)
    yield "connect", "Connect", min(timings.connect, whole)
    yield "tls", "TLS", min(timings.tls, whole)
    yield "first-byte", "Until the first byte", min(timings.first_byte, whole) if answered else 0
    yield "rest", "Rest of the answer" if answered else "Until it ended", whole
