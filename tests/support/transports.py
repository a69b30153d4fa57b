"""A transport whose attempts end when the test says so."""

from __future__ import annotations

from collections.abc import Sequence

from doorstep.clock import Clock
from doorstep.model.attempt import Failure, Reply
from doorstep.transports.transport import Done, Transmission, Transport


class FakeTransport(Transport):
    """Every attempt stays `unanswered` until `answer` or `fail` ends it. `started` lists all attempts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.started: list[Transmission] = []
        self.unanswered: list[Transmission] = []

    def open(self, done: Done) -> None:
        self._done = done

    async def close(self) -> None:
        """Unanswered attempts stay unanswered."""

    def start(self, transmissions: Sequence[Transmission]) -> None:
        """Record the attempts as unanswered."""
        self.started.extend(transmissions)
        self.unanswered.extend(transmissions)

    def answer(self, status: int = 200, headers: bytes = b"", body: bytes = b"", count: int | None = None) -> None:
        """Answer the oldest `count` attempts (by default all), in one batch."""
        block = b"HTTP/1.1 %d\r\n" % status + headers
        self._end(count, status=status, headers=block, body=body)

    def fail(self, code: str, message: str = "", count: int | None = None) -> None:
        """End the oldest `count` attempts without a response, as a refused connection or a timeout would."""
        self._end(count, failure=Failure(code, message))

    def fall_short(self, shortage: str, count: int | None = None) -> None:
        """End the oldest `count` attempts before they were made, because this process lacked something."""
        self._end(count, failure=Failure("CONNECTION", ""), shortage=shortage)

    def _end(self, count: int | None, **fields: object) -> None:
        ended = self.unanswered[:count]
        self.unanswered = self.unanswered[len(ended) :]
        now = self._clock.now()
        reply = Reply(started_at=now, finished_at=now, **fields)  # type: ignore[arg-type]
        self._done([(transmission, reply) for transmission in ended])
