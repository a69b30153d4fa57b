"""The program inside a handler process: it makes one attempt after another until the worker closes the connection.

Plain functions run in the main thread. Async functions run on an event loop in another thread, which exists as long as
the process.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable

from doorstep.loop_binding import LoopThread
from doorstep.model.attempt import Code, Failure
from doorstep.telemetry.tracing import within
from doorstep.transports.handler_arguments import called
from doorstep.transports.handler_replies import Ending, Received, body_of, ending_of_error, failure_of
from doorstep.transports.isolation import Orders, Report, decoded, find, framed, read_frame

_MIB = 1024 * 1024
_DIES_WITH_PARENT = 1
"""The value of PR_SET_PDEATHSIG on Linux."""
_EXIT_SECONDS = 5
"""How long the application's clean-up may take when an idle process ends."""


def main() -> None:
    """Read the `Orders`, load the function, and make attempts."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    _outlive_signals()
    orders = decoded(read_frame(link), Orders)
    sys.path[:] = orders.search_path
    if orders.isolation.folder is not None:
        with contextlib.suppress(OSError):  # the directory was removed, so no file in it can be needed
            os.chdir(orders.isolation.folder)
    runner = _Runner(orders)
    _end_with_worker(link, runner)
    link.sendall(framed(runner.prepare()))
    _work(link, runner)
    signal.alarm(_EXIT_SECONDS)


def _work(link: socket.socket, runner: _Runner) -> None:
    own = os.getpid()
    while content := read_frame(link):
        report = runner.attempt(decoded(content, Received))
        if os.getpid() != own:
            os._exit(0)  # the handler forked, and this is the child, which must not report the attempt
        link.sendall(framed(report))


class _Runner:
    """Loads the function and makes attempts with it, within its memory limit."""

    def __init__(self, orders: Orders) -> None:
        self._isolation = orders.isolation
        self._thread = LoopThread()
        self.busy = True
        """Whether application code is running: while it is being loaded, and during an attempt."""

    def prepare(self) -> Report:
        """Load the function, then set the memory limit."""
        try:
            self._function: Callable[..., object] = find(self._isolation.place)
            _limit_memory(self._isolation.memory_mb_max)
        except BaseException as error:  # noqa: BLE001  the application's module may raise anything, SystemExit too
            return Report(failure=_unloadable(error), worn=True)
        finally:
            self.busy = False
        return Report()

    def attempt(self, received: Received) -> Ending:
        self.busy = True
        try:
            with within(received.traceparent, received.tracestate):
                body = body_of(self._call(received))
        except MemoryError as error:
            _limit_memory(None)  # so that the failure can be reported
            return Report(failure=self._too_much(failure_of(error, received.payload)), worn=True)
        except BaseException as error:  # noqa: BLE001  SystemExit too: it must end only the attempt, not the process
            return ending_of_error(error, received)
        finally:
            self.busy = False
        return Report(body)

    def _call(self, received: Received) -> object:
        result = called(self._function, received)
        if not inspect.isawaitable(result):
            return result
        value, error = self._thread.run(lambda: _outcome(result))
        if error is not None:
            raise error
        return value

    def _too_much(self, failure: Failure) -> Failure:
        limit = self._isolation.memory_mb_max
        allowed = f"more memory than the {limit} MB that it may use" if limit else "more memory than there is"
        return Failure(Code.HANDLER_CRASHED, f"The handler needed {allowed}.", detail=failure.detail)


def _unloadable(error: BaseException) -> Failure:
    """The failure to report if the function cannot be loaded. The text of the exception may quote anything in the
    environment, so it is only in the detail, which only operators see."""
    return Failure(Code.HANDLER_CRASHED, f"it raised {type(error).__name__}.", detail=failure_of(error, b"").detail)


async def _outcome(result: Awaitable[object]) -> tuple[object, BaseException | None]:
    """Wait for the result. An exception is returned, not raised: SystemExit would end the event loop instead of
    reaching the caller."""
    try:
        return await result, None
    except BaseException as error:  # noqa: BLE001
        return None, error


def _limit_memory(mb_max: int | None) -> None:
    """Limit the memory of this process. On Linux, only data memory is limited, not the whole address space: four
    threads reserve 290 MB but use 30 MB."""
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    _, most = resource.getrlimit(kind)
    wanted = most if mb_max is None else mb_max * _MIB
    resource.setrlimit(kind, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _outlive_signals() -> None:
    """Do nothing on SIGINT and SIGTERM. Ctrl-C and service managers may signal all processes of a service, but the
    worker ends this process after its attempt.

    The signals are handled by a function that does nothing. SIG_IGN is not used, because programs that the
    application's code starts would inherit it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def _end_with_worker(link: socket.socket, runner: _Runner) -> None:
    """Make this process end when the worker is killed, even during an attempt that hangs and blocks all threads."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    threading.Thread(target=_watch, args=(link, runner), name="doorstep-watch", daemon=True).start()


def _watch(link: socket.socket, runner: _Runner) -> None:
    """Wait until the worker closes the connection. If this process is busy at that time, kill its process group. An
    idle process ends normally."""
    hung_up = select.poll()
    hung_up.register(link, 0)
    hung_up.poll()
    if runner.busy:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
