"""Transports without a network: one that a test answers, one that plays personalities."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Clock
from doorstep.model.attempt import Code, Failure, Reply
from doorstep.testing.receiver import Answer, Manner, Player
from doorstep.transports.transport import Done, Transmission


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


_FAILURES = {
    Manner.SAYS_NOTHING: Failure(Code.TIMEOUT, "The receiver did not answer in time."),
    Manner.DRIBBLES: Failure(Code.TIMEOUT, "The receiver did not finish its answer in time."),
    Manner.RESETS: Failure(Code.CONNECTION, "The receiver closed the connection without an answer."),
}


class NoNetwork(Player):
    """A `Transport` for every URL. Pauses of a personality take no time; those longer than the timeout are one."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._done: Done | None = None
        self._error: Exception | None = None

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
        """Replies come a moment later, as from a real one."""
        replies = [(transmission, self._reply(transmission)) for transmission in transmissions]
        asyncio.get_running_loop().call_soon(self._hand_over, replies)

    async def close(self) -> None:
        """Report no more."""
        self._done = None

    def raise_error(self) -> None:
        """Raise what a personality raised since the last time; the first of it, if there was more."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _hand_over(self, replies: Sequence[tuple[Transmission, Reply]]) -> None:
        if self._done is not None:
            self._done(replies)

    def _reply(self, transmission: Transmission) -> Reply:
        pairs = (line.partition(":") for line in transmission.headers)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        answer = self._answer(transmission, headers)
        now = self.clock.now()
        if failure := _failure(answer, transmission.timeout_seconds):
            return Reply(started_at=now, finished_at=now, request_headers=transmission.logged_headers, failure=failure)
        return Reply(
            started_at=now,
            finished_at=now,
            request_headers=transmission.logged_headers,
            status=answer.status,
            headers=_head(answer),
            body=answer.body,
        )

    def _answer(self, transmission: Transmission, headers: dict[str, str]) -> Answer:
        """A personality that raises is a receiver that hangs up; the test is told at the end of its drain."""
        try:
            return self.play(transmission.target, headers, transmission.claim.payload)
        except Exception as error:  # noqa: BLE001  the engine must go on, or the next drain would wait for this try
            self._error = self._error or error
            return Answer(manner=Manner.RESETS)


def _failure(answer: Answer, timeout_seconds: float) -> Failure | None:
    return _FAILURES.get(Manner.SAYS_NOTHING if answer.after_seconds >= timeout_seconds else answer.manner)


def _head(answer: Answer) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {answer.status} Said", *answer.headers, "")).encode()
