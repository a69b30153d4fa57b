"""What runs inside a handler's process: one attempt after the other, until the worker is gone.

Plain functions run in the main thread, async ones in an event loop beside it that lives as long as the process.
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
from typing import Any

from doorstep.loop_binding import LoopThread
from doorstep.model.attempt import Code, Failure
from doorstep.telemetry.tracing import within
from doorstep.transports.handler_replies import Received, body_of, failure_of, response_of
from doorstep.transports.isolation.frames import Orders, Report, decoded, find, framed, read_frame

_MIB = 1024 * 1024
_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""
_LAST_RITES_SECONDS = 5
"""What the program's own clean-up may take at the end of an idle process."""


def main() -> None:
    """Take the orders, load the function, and work."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    _outlive_signals()
    orders = decoded(read_frame(link), Orders)
    sys.path[:] = orders.search_path
    if orders.folder is not None:
        with contextlib.suppress(OSError):  # it is gone: then nothing in it is needed
            os.chdir(orders.folder)
    bench = _Bench(orders)
    _end_with_worker(link, bench)
    link.sendall(framed(bench.prepare()))
    _work(link, bench)
    signal.alarm(_LAST_RITES_SECONDS)


def _work(link: socket.socket, bench: _Bench) -> None:
    own = os.getpid()
    while content := read_frame(link):
        report = bench.attempt(decoded(content, Received))
        if os.getpid() != own:
            os._exit(0)  # the handler forked and let the copy return: the attempt is not the copy's to report
        link.sendall(framed(report))


class _Bench:
    """The function and what it may use."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._thread = LoopThread()
        self.busy = True
        """In the program's own code: loading it, or in an attempt."""

    def prepare(self) -> Report:
        """Load the function; the limit holds from then on."""
        try:
            self._function: Callable[[Received], Any] = find(self._orders.place)
            _limit_memory(self._orders.memory_mb_max)
        except BaseException as error:  # noqa: BLE001  whatever their module does, SystemExit too
            return Report(failure=_unloadable(error), worn=True)
        finally:
            self.busy = False
        return Report()

    def attempt(self, received: Received) -> Report:
        self.busy = True
        try:
            with within(received.traceparent, received.tracestate):
                body = body_of(self._call(received), self._orders.body_bytes_max)
        except MemoryError as error:
            _limit_memory(None)  # to be able to say so
            return Report(failure=self._too_much(failure_of(error, received.payload)), worn=True)
        except BaseException as error:  # noqa: BLE001  SystemExit too: it costs the attempt, not the process
            response = body_of(response_of(error), self._orders.body_bytes_max)
            return Report(response, failure_of(error, received.payload))
        finally:
            self.busy = False
        return Report(body)

    def _call(self, received: Received) -> object:
        result = self._function(received)
        if not inspect.isawaitable(result):
            return result
        value, error = self._thread.run(lambda: _outcome(result))
        if error is not None:
            raise error
        return value

    def _too_much(self, failure: Failure) -> Failure:
        limit = self._orders.memory_mb_max
        allowed = f"more memory than the {limit} MB that it may use" if limit else "more memory than there is"
        return Failure(Code.HANDLER_CRASHED, f"The handler needed {allowed}.", detail=failure.detail)


def _unloadable(error: BaseException) -> Failure:
    """Its own words, which may quote anything that it found in its environment, are for operators."""
    return Failure(Code.HANDLER_CRASHED, f"it raised {type(error).__name__}.", detail=failure_of(error, b"").detail)


async def _outcome(result: Awaitable[object]) -> tuple[object, BaseException | None]:
    """As a value: SystemExit would end the event loop instead of reaching whoever waits."""
    try:
        return await result, None
    except BaseException as error:  # noqa: BLE001
        return None, error


def _limit_memory(mb_max: int | None) -> None:
    """On Linux what is written to counts, not what is merely reserved: four threads reserve 290 MB and use 30."""
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    _, most = resource.getrlimit(kind)
    wanted = most if mb_max is None else mb_max * _MIB
    resource.setrlimit(kind, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _outlive_signals() -> None:
    """Ctrl-C and a service manager reach the whole family; it is the worker who ends us, when our attempt is over.

    Functions, not SIG_IGN, which every program that the handler starts would inherit.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def _end_with_worker(link: socket.socket, bench: _Bench) -> None:
    """Never outlive a worker that was killed, even in an attempt that hangs and lets no other thread run."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    threading.Thread(target=_watch, args=(link, bench), name="doorstep-watch", daemon=True).start()


def _watch(link: socket.socket, bench: _Bench) -> None:
    """Idle, we see for ourselves that the worker has hung up; in the middle of something, all is ended at once."""
    hung_up = select.poll()
    hung_up.register(link, 0)
    hung_up.poll()
    if bench.busy:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
