"""Carrying out a call, repeated with growing pauses where that is harmless and may help."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from doorstep.client.call import Call
from doorstep.client.steps import Answer, Silence, Steps, exchange, pause

T = TypeVar("T")
_PASSING = frozenset({429, 502, 503, 504})
"""Refusals that say nothing about the request itself."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """How often a call is tried, and how long the pauses are: doubled each time, and at least what Retry-After says.

    Only calls that may safely be sent twice are repeated: those that read, and the sending of events, which carries
    an idempotency key.
    """

    tries_max: int = 5
    first_pause_seconds: float = 0.25
    longest_pause_seconds: float = 30.0
    random: Callable[[], float] = random.random

    def pauses(self) -> Iterator[float]:
        """One after each try but the last; drawn from the upper half, so that many clients do not come back at once."""
        for number in range(self.tries_max - 1):
            yield self.first_pause_seconds * 2**number * (1 + self.random()) / 2


USUAL = Retrying()
NEVER = Retrying(tries_max=1)
"""Every request is sent once."""


def perform(call: Call[T], retrying: Retrying) -> Steps[T]:
    """What the call gives in the end."""
    reply = yield from exchange(call.request)
    if call.repeatable:
        for seconds in retrying.pauses():
            if not _passing(reply):
                break
            yield from pause(min(max(seconds, _asked_for(reply)), retrying.longest_pause_seconds))
            reply = yield from exchange(call.request)
    return call.read(reply)


def _passing(reply: Answer | Silence) -> bool:
    return isinstance(reply, Silence) or reply.status in _PASSING


def _asked_for(reply: Answer | Silence) -> float:
    return 0.0 if isinstance(reply, Silence) else reply.retry_after_seconds or 0.0
