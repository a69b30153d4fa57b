"""A transport without a network: it keeps what it is given, until a test answers."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Clock
from doorstep.model.outcome import Failure, Reply
from doorstep.wire.transport import Done, Transmission


class FakeTransport:
    """Every try stays `unanswered` until `answer` or `fail` ends it; `started` keeps all there ever were."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._done: Done | None = None
        self.started: list[Transmission] = []
        self.unanswered: list[Transmission] = []

    def open(self, done: Done) -> None:
        """Tell it who is to be told of replies."""
        self._done = done

    def serves(self, target: str, org_id: UUID) -> bool:
        """Whatever the target."""
        return True

    def places(self, target: str) -> int | None:
        """There is no limit."""
        return None

    def start(self, transmissions: Sequence[Transmission]) -> None:
        """Keep them, unanswered."""
        self.started.extend(transmissions)
        self.unanswered.extend(transmissions)

    async def close(self) -> None:
        """What is unanswered stays so: a closed transport reports no more."""
        self._done = None

    def answer(self, status: int = 200, headers: bytes = b"", body: bytes = b"", count: int | None = None) -> None:
        """Answer the oldest `count` tries (all, unless told otherwise), in one batch."""
        block = b"HTTP/1.1 %d\r\n" % status + headers
        self._end(count, status=status, headers=block, body=body)

    def fail(self, code: str, message: str = "", count: int | None = None) -> None:
        """End the oldest tries without an answer, as a refused connection or a timeout does."""
        self._end(count, failure=Failure(code, message))

    def _end(self, count: int | None, **fields: object) -> None:
        ended = self.unanswered[:count]
        self.unanswered = self.unanswered[len(ended) :]
        now = self._clock.now()
        reply = Reply(started_at=now, finished_at=now, **fields)  # type: ignore[arg-type]
        if self._done is not None:
            self._done([(transmission, reply) for transmission in ended])
