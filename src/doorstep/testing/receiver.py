"""A webhook receiver on a real socket, in a thread of its own: for tests with and without an event loop.

with Receiver() as receiver:
    receiver.behaves(scripted([500, 500, 200]))
    endpoint, secret = await doorstep.create_endpoint(name="shop", url=receiver.url())
    receiver.verifies(secret)
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Self

from doorstep.clock import AnchoredClock, Clock
from doorstep.testing.personalities import Answer, Manner, Player

_RESET_ON_CLOSE = b"\x01\0\0\0\0\0\0\0"
_DRIBBLE_SECONDS = 1.0


class Receiver(Player):
    """Takes everything, until told to behave otherwise. Give it the clock of the sandbox to verify signatures by."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock or AnchoredClock())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="receiver", daemon=True)
        self.port = 0

    def url(self, path: str = "/") -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}{path}"

    def open(self) -> None:
        """Listen at a free port of this machine."""
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def close(self) -> None:
        """Hang up on everybody and stop listening."""
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- in the thread -------------------------------------------------------------------------------------

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _hang_up(self) -> None:
        self._server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # a connection that was closed is hung up in the next turn of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._take(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the sender went away, or the test has ended
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False when the connection is of no more use."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        answer = self.play(self.url(first.split(" ")[1]), headers, body)
        await asyncio.sleep(answer.after_seconds)
        return await _give(answer, writer)


async def _give(answer: Answer, writer: asyncio.StreamWriter) -> bool:
    match answer.manner:
        case Manner.ANSWERS:
            writer.write(_written(answer))
            await writer.drain()
        case Manner.DRIBBLES:
            for byte in _written(answer):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(_DRIBBLE_SECONDS)
        case Manner.SAYS_NOTHING:
            await asyncio.Event().wait()
        case Manner.RESETS:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()
            return False
    return True


def _written(answer: Answer) -> bytes:
    lines = (f"HTTP/1.1 {answer.status} Said", f"content-length: {len(answer.body)}", *answer.headers)
    return "\r\n".join((*lines, "", "")).encode() + answer.body
