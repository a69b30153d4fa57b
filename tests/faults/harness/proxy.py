"""A TCP proxy that loses answers: it forwards a request, waits for the answer, and then closes the connection.

The server has then carried out the request, but the client cannot know.
"""

from __future__ import annotations

import asyncio
import random
import threading
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class AnswerLosingProxy:
    """Listens on loopback in its own thread. While `share` is above zero, this share of all answers is lost."""

    def __init__(self, target_port: int, seed: int = 1) -> None:
        self._target_port = target_port
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.share = 0.0
        self.lost_answers = 0
        self.lost_commits = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            away_reader, away_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        losing = asyncio.Event()
        await asyncio.gather(
            self._ask(reader, away_writer, losing), _answer(away_reader, writer, losing), return_exceptions=True
        )
        writer.close()
        away_writer.close()

    async def _ask(self, reader: asyncio.StreamReader, away: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        while request := await reader.read(_CHUNK):
            if self._random.random() < self.share:
                losing.set()
                self.lost_answers += 1
                self.lost_commits += b"COMMIT" in request
            away.write(request)
            await away.drain()
        away.close()


async def _answer(away: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
    while answer := await away.read(_CHUNK):
        if losing.is_set():
            break
        writer.write(answer)
        await writer.drain()
    writer.close()
