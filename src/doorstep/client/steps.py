"""What a client does, as data: requests to send and pauses to make, with no I/O in it.

Everything that takes more than one request (retries, waiting, lists) is a generator that yields steps and is handed
what came of them. It is written once; the blocking and the asyncio client only carry the steps out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, its path relative to where Doorstep is."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Let so much time pass; the reply is the time after it, in seconds on a clock that never jumps."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def retry_after_seconds(self) -> float | None:
        given = self.headers.get("retry-after", "")
        return float(given) if given.isascii() and given.isdigit() else None


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer came, and why."""

    reason: str


Step: TypeAlias = Request | Pause
Reply: TypeAlias = Answer | Silence | float | None
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Reply, T]


def exchange(request: Request) -> Steps[Answer | Silence]:
    """Send it and see what comes."""
    reply = yield request
    if not isinstance(reply, Answer | Silence):
        raise TypeError(f"the reply to a request is an answer or silence, got {reply!r}")
    return reply


def pause(seconds: float) -> Steps[float]:
    """Wait; gives the time after it."""
    reply = yield Pause(seconds)
    if not isinstance(reply, float):
        raise TypeError(f"the reply to a pause is the time, got {reply!r}")
    return reply
