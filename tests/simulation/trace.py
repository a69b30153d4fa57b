"""The trace: everything that happened in a run, in order. Two runs of one seed have the same trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doorstep.clock import SECOND, Instant
from tests.simulation.journal import Step
from tests.simulation.virtual_loop import VirtualLoop


class Trace:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._notes: list[tuple[Instant, str, tuple[Any, ...]]] = []

    def note(self, who: str, *what: Any) -> None:
        """Record an entry cheaply: text is formatted only when the trace is read."""
        self._notes.append((self._loop.now, who, what))

    def lines(self) -> Iterator[str]:
        for at, who, what in self._notes:
            text = " ".join(filter(None, map(_worded, what)))
            yield f"{at / SECOND:12.6f}  {who:<10} {text}"


def _worded(part: Any) -> str:
    if isinstance(part, list):
        return "[" + ", ".join(map(_worded_step, part)) + "]"
    return str(part)


def _worded_step(step: Step) -> str:
    """`…c0ffee pending→in_progress #1 token 1`."""
    states = [one.state if one else "none" for one in (step.before, step.after)]
    words = [short(step.delivery_id), "→".join(states)]
    if step.after is not None:
        words.append(f"#{step.after.attempt}")
    if step.token is not None:
        words.append(f"token {step.token}")
    if step.settlement is not None:
        words.append(step.settlement.outcome.code or "success")
    return " ".join(words + ["(late)"] * step.late)


def short(some_id: Any) -> str:
    """The end of an id, which is the part that differs."""
    return "…" + str(some_id)[-6:]
