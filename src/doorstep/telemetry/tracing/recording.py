"""Which spans are recorded, and where they go."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from doorstep.telemetry.tracing.context import TraceContext, beginning, begun

_log = logging.getLogger("doorstep.tracing")

Sink = Callable[[Sequence[bytes]], None]
"""Takes spans that are over, as `otlp` writes them."""
Sampler = Callable[[TraceContext], bool]


def always(_: TraceContext) -> bool:
    return True


def never(_: TraceContext) -> bool:
    return False


def ratio(share: float) -> Sampler:
    """This share of all traces. The id of a trace decides, so every process decides alike."""
    bound = round(share * (1 << 56))
    return lambda context: context.trace_id & _56_BITS < bound


_56_BITS = (1 << 56) - 1
"""The part of a trace's id that is random, says the W3C."""


def at_most(traces_per_second: int, clock: Callable[[], float] = time.monotonic) -> Sampler:
    """All traces, until there are so many in one second."""
    second, count = 0, 0

    def sample(_: TraceContext) -> bool:
        nonlocal second, count
        if (now := int(clock())) != second:
            second, count = now, 0
        count += 1
        return count <= traces_per_second

    return sample


def parent_based(root: Sampler) -> Sampler:
    """As the sender decided; for traces that begin here, as `root` does."""
    return lambda context: root(context) if context.sampled is None else context.sampled


USUAL = parent_based(always)


class Tracing:
    """Takes the spans that are wanted."""

    def __init__(self, sink: Sink, sampler: Sampler = USUAL) -> None:
        self._sink = sink
        self.samples = sampler

    def begin(self, event_id: UUID) -> str | None:
        """The trace of an event that came without one; None if it is to have none.

        What is decided here is kept with the event. So all processes agree, and one that is not traced costs nothing.
        """
        return begun(event_id) if self.samples(beginning(event_id)) else None

    def record(self, spans: Iterable[bytes]) -> None:
        """It never raises: what the spans are about has been written, and must not seem to have failed."""
        try:
            batch = tuple(spans)
            if batch:
                self._sink(batch)
        except Exception:  # noqa: BLE001  logged, with what it was
            _log.exception("spans could not be recorded")
