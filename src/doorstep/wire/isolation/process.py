"""One handler's process as the worker sees it: started, asked, answered; or ended, by itself or by us."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process

import msgspec

from doorstep.model.outcome import Code, Failure
from doorstep.wire.isolation.frames import FRAME_BYTES_MAX, HEAD_BYTES, Orders, Report, decoded, framed

_CHILD = "doorstep.wire.isolation.child"
_END_SECONDS_MAX = 6.0
"""How long a process that was let go may take to end: a second more than it allows itself."""


class Crashed(Exception):
    """The process is of no use any more; `failure` says why, in words for an operator."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.failure = Failure(Code.HANDLER_CRASHED, message, detail=detail)


class HandlerProcess:
    """A Python of its own with one function loaded, which makes one attempt at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._killed = False

    async def start(self, orders: Orders) -> None:
        """Start it and wait until it is ready; its output goes where ours goes."""
        try:
            await self._launch()
        except OSError as error:
            raise Crashed(f"The handler's process could not be started: {error}.") from None
        report = await self._ask(orders, "The handler's process could not start: it")
        if report.failure is not None:
            message = f"The handler's process could not load its function: {report.failure.message}"
            raise Crashed(message, report.failure.detail)

    async def attempt(self, received: bytes) -> Report:
        """One attempt; Crashed if it was the end of the process."""
        return await self._ask(msgspec.Raw(received), "The handler's process")

    def kill(self) -> None:
        """End it at once, with whatever the handler has started in it."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it was quicker

    async def end(self) -> None:
        """Hang up, which ends it in order if it is idle, and see that it is gone."""
        if self._writer is not None:
            self._writer.close()
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), _END_SECONDS_MAX)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    async def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-u", "-m", _CHILD, str(theirs.fileno())),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        if self._killed:  # while it was being started
            self.kill()

    async def _ask(self, message: object, who: str) -> Report:
        assert self._writer is not None, "it was started"
        try:
            self._writer.write(framed(message))
            size = int.from_bytes(await self._reader.readexactly(HEAD_BYTES), "big")
            if size > FRAME_BYTES_MAX:
                raise _nonsense()
            return decoded(await self._reader.readexactly(size), Report)
        except (asyncio.IncompleteReadError, OSError):
            raise Crashed(f"{who} {await self._how_it_ended()}.") from None
        except msgspec.MsgspecError:
            raise _nonsense() from None

    async def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = await asyncio.wait_for(self._process.wait(), 1.0)
        except TimeoutError:
            return "closed its connection to the worker"
        if code >= 0:
            return f"ended itself with exit code {code}"
        return f"was ended by {_signal_name(-code)}"


def _nonsense() -> Crashed:
    return Crashed("The handler's process wrote something else than a report to its connection with the worker.")


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    described = (signal.strsignal(number) or "").lower()
    hint = ", as the system does when memory runs out" if number == signal.SIGKILL else f" ({described})"
    return name + hint
