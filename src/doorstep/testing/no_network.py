"""What a sandbox has instead of the network: a transport that plays personalities, and connects to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import Clock
from doorstep.model.outcome import Code, Failure, Reply
from doorstep.testing.personalities import Answer, Manner, Player
from doorstep.wire.transport import Done, Transmission

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
