"""Callers: each caller has its own connection, and makes its next call when the previous call is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, repeat
from typing import cast


class Tally:
    """The results of all callers together."""

    def __init__(self, expected: bytes) -> None:
        self.expected = expected
        """The beginning of a successful response."""
        self.deadline = 0.0
        """No calls are made after this time."""
        self.started = 0.0
        self.last_answer_at = 0.0
        self.milliseconds: list[float] = []
        """The time of each successful response."""
        self.refused = 0
        """The number of other responses."""
        self.answers: list[tuple[float, bytes]] = []
        """The successful responses, each with the time of its call."""

    @property
    def per_second(self) -> float:
        return len(self.milliseconds) / (self.last_answer_at - self.started)


def pauses(per_second: float | None) -> Iterator[float]:
    """The pause before each call: none, or one that keeps the rate steady regardless of response times."""
    if per_second is None:
        yield from repeat(0.0)
    else:
        started = time.monotonic()
        for number in count():
            yield max(0.0, started + number / per_second - time.monotonic())


async def call_for(
    seconds: float, port: int, requests: Sequence[Iterator[bytes]], expected: bytes, think: Callable[[], float]
) -> Tally:
    """Run one caller for each of `requests` for this long, or until they run out, with a pause of
    `think()` before each."""
    loop = asyncio.get_running_loop()
    tally = Tally(expected)
    made = [
        await loop.create_connection(lambda own=own: Caller(own, tally, think), "127.0.0.1", port)  # type: ignore[misc]
        for own in requests
    ]
    tally.started = time.perf_counter()
    tally.deadline = tally.started + seconds
    for _, caller in made:
        caller.pause()
    await asyncio.gather(*(caller.ended for _, caller in made))
    return tally


class Caller(asyncio.Protocol):
    def __init__(self, requests: Iterator[bytes], tally: Tally, think: Callable[[], float]) -> None:
        self._requests = requests
        self._tally = tally
        self._think = think
        self._buffer = b""
        self._called_at = 0.0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server hung up"))

    def pause(self) -> None:
        """Pause, then make the next call."""
        if seconds := self._think():
            asyncio.get_running_loop().call_later(seconds, self._call)
        else:
            self._call()

    def _call(self) -> None:
        self._called_at = time.perf_counter()
        request = next(self._requests, None) if self._called_at < self._tally.deadline else None
        if request is not None:
            self._transport.write(request)
        else:
            self.ended.set_result(None)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end >= 0 and len(self._buffer) >= head_end + 4 + _length(self._buffer[:head_end]):
            self._answered()

    def _answered(self) -> None:
        now = time.perf_counter()
        if self._buffer.startswith(self._tally.expected):
            self._tally.milliseconds.append(1_000 * (now - self._called_at))
            self._tally.answers.append((self._called_at, self._buffer))
        else:
            self._tally.refused += 1
        self._tally.last_answer_at = now
        self._buffer = b""
        self.pause()


def _length(head: bytes) -> int:
    at = head.find(b"content-length: ")
    return int(head[at + 16 :].split(b"\r\n", 1)[0])
