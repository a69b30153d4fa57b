"""One handler's process as the worker sees it: started, asked, answered; or ended, by itself or by us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable

import msgspec

from doorstep.model.outcome import Code, Failure
from doorstep.wire.isolation.frames import FRAME_BYTES_MAX, HEAD_BYTES, Orders, Report, decoded, framed

_CHILD = "doorstep.wire.isolation.child"
_START_SECONDS_MAX = 60.0
"""How long a program may take to be imported."""
_END_SECONDS_MAX = 6.0
"""How long a process that was let go may take to end: a second more than it allows itself."""
_KILLED_SECONDS_MAX = 2.0
"""And one that was killed: longer only if it hangs in the system itself, where nobody can end it."""


class Crashed(Exception):
    """The process is of no use any more; `failure` says why, in words for an operator."""

    def __init__(self, message: str, detail: str = "", heard: bool = True) -> None:
        """`heard` is False if it died without having read what it was told."""
        super().__init__(message)
        self.heard = heard
        self.failure = Failure(Code.HANDLER_CRASHED, message, detail=detail)


class HandlerProcess:
    """A Python of its own with one function loaded, which makes one attempt at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._killed = False
        self._tell_death: Callable[[], None] = lambda: None

    async def start(self, orders: Orders) -> None:
        """Start it and wait until it is ready; its output goes where ours goes."""
        try:
            async with asyncio.timeout(_START_SECONDS_MAX):
                await self._launch()
                await self._prepare(orders)
        except TimeoutError:
            self.kill()
            raise Crashed(_NOT_READY.format(_START_SECONDS_MAX)) from None
        except OSError as error:
            raise Crashed(f"The handler's process could not be started: {error}.") from None

    def on_death(self, tell: Callable[[], None]) -> None:
        """Call this, and no longer what was to be called before, when the process has ended for whatever reason."""
        self._tell_death = tell

    @property
    def dead(self) -> bool:
        """Whether it has ended by now; the system knows before the event loop does."""
        if self._process is None or self._process.returncode is not None or self._reader.at_eof():
            return True
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return False
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    async def attempt(self, received: bytes) -> Report:
        """One attempt; Crashed if it was the end of the process."""
        return await self._ask(msgspec.Raw(received), "The handler's process")

    def kill(self) -> None:
        """End it at once, with whatever the handler has started in it."""
        self._killed = True
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:
                pass  # nobody is left

    async def end(self) -> None:
        """Hang up, which ends it in order if it is idle, and see that it is gone, with whatever it left behind."""
        if self._writer is not None:
            self._writer.close()
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), _END_SECONDS_MAX)
        except TimeoutError:
            pass
        finally:
            self.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _KILLED_SECONDS_MAX)

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
        self._watched = asyncio.get_running_loop().create_task(self._process.wait())
        self._watched.add_done_callback(lambda _: self._tell_death())
        if self._killed:  # while it was being started
            self.kill()

    async def _prepare(self, orders: Orders) -> None:
        report = await self._ask(orders, "The handler's process could not start: it")
        if report.failure is not None:
            message = f"The handler's process could not load its function: {report.failure.message}"
            raise Crashed(message, report.failure.detail)

    async def _ask(self, message: object, who: str) -> Report:
        assert self._writer is not None, "it was started"
        try:
            self._writer.write(framed(message))
            size = int.from_bytes(await self._reader.readexactly(HEAD_BYTES), "big")
            if size > FRAME_BYTES_MAX:
                raise _nonsense()
            return decoded(await self._reader.readexactly(size), Report)
        except asyncio.IncompleteReadError:
            raise Crashed(f"{who} {await self._how_it_ended()}.") from None
        except OSError:  # a connection that ends with something unread in it is reset, not closed
            raise Crashed(f"{who} {await self._how_it_ended()}.", heard=False) from None
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


_NOT_READY = "The handler's process could not start: it was not ready within {:g} s, and was ended."


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
