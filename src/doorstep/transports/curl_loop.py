"""libcurl's multi handle inside the event loop: many concurrent transfers, served when their sockets are ready.

It deliberately does not use a thread. curl calls Python for every header line, and in a second thread each call would
have to acquire the interpreter lock. While the event loop was busy, that took up to 5 ms per call, and attempts with a
timeout of 5 s ended after 15 s. Inside the event loop, the same load costs about 27 µs per request.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pycurl

Ready = Callable[[Sequence[tuple[int, int]]], None]
"""A callback that receives (socket, readiness) pairs, with the readiness as curl's `CSELECT_*` flags. It receives no
pairs if a timer has fired."""


class CurlLoop:
    """A multi handle that calls `wake` when there is something to do. Its owner must then call the other methods.

    If the multi handle is broken, a method raises pycurl.error or `trouble` is set. This object must then be replaced.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connections_max: int, wake: Ready) -> None:
        self._loop = loop
        self._wake = wake
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.trouble = ""
        self._readiness = readiness(loop, wake)
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections_max)

    def add(self, curl: Any) -> None:
        """Add a transfer. It starts at the next call of `serve_due`."""
        self._multi.add_handle(curl)

    def serve(self, ready: Sequence[tuple[int, int]]) -> None:
        act = self._multi.socket_action
        for fd, flags in ready:
            act(fd, flags)

    def serve_due(self) -> None:
        if self._due is not None and self._due <= self._loop.time():
            self._due = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def ended(self) -> Iterator[tuple[Any, int, str]]:
        """The transfers that have ended, with curl's error code and text. They are removed from the multi handle."""
        queued = 1
        while queued:
            queued, answered, failed = self._multi.info_read()
            for curl in answered:
                self._multi.remove_handle(curl)
                yield curl, 0, ""
            for curl, error, text in failed:
                self._multi.remove_handle(curl)
                yield curl, error, text

    def set_timer(self) -> None:
        """Set the timer to the time that curl requested. A timer that is already set to an earlier time is kept: when
        it fires, nothing is due, and it is set again."""
        if self._due is None or (self._timer is not None and self._timer_at <= self._due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._due
        self._timer = self._loop.call_at(self._due, self._on_time)

    def close(self, running: Iterable[Any]) -> None:
        """Close all connections. `running` contains the transfers that have not ended."""
        if self._timer is not None:
            self._timer.cancel()
        for curl in running:
            with suppress(pycurl.error):  # adding the transfer to a broken multi handle may have failed
                self._multi.remove_handle(curl)
        self._multi.close()
        self._readiness.close()

    # -- called by curl and the event loop -----------------------------------------------------------------

    def _on_socket(self, wanted: int, fd: int, _multi: object, _data: object) -> None:
        if wanted == pycurl.POLL_REMOVE:
            self._readiness.forget(fd)
            return
        try:
            self._readiness.watch(fd, wanted)
        except OSError as error:  # pycurl would print the error and continue without watching the socket
            self.trouble = str(error)

    def _on_timer(self, milliseconds: int) -> None:
        if milliseconds > 0:
            self._due = self._loop.time() + milliseconds / 1000
        else:
            self._due = 0.0 if milliseconds == 0 else None

    def _on_time(self) -> None:
        self._timer = None
        self._wake(())


_ROUND_MAX = 128
"""The maximum number of sockets served in one round. It lets the event loop continue after about 2 ms. The remaining
sockets are served in the next round."""


def readiness(loop: asyncio.AbstractEventLoop, ready: Ready) -> EpollReadiness | LoopReadiness:
    return EpollReadiness(loop, ready) if hasattr(select, "epoll") else LoopReadiness(loop, ready)


class EpollReadiness:
    """Uses epoll. An idle socket stays registered between requests: removing it and adding it again costs 5 µs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._wanted: dict[int, int] = {}
        """The events for which each registered socket is watched; 0 for an idle socket."""
        self._open()

    def watch(self, fd: int, wanted: int) -> None:
        """Watch a socket for the events that curl requests (`POLL_*` flags). This replaces an earlier request."""
        events = _EPOLL_EVENTS.get(wanted, 0)
        known = fd in self._wanted
        self._wanted[fd] = events
        if known:
            try:
                self._epoll.modify(fd, events)
                return
            except FileNotFoundError:
                pass  # the idle socket was closed, and a new socket has the same number
        self._epoll.register(fd, events)

    def forget(self, fd: int) -> None:
        self._wanted[fd] = 0

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _open(self) -> None:
        self._epoll = select.epoll()
        for fd, events in self._wanted.items():
            self._epoll.register(fd, events)
        self._loop.add_reader(self._epoll.fileno(), self._poll)

    def _poll(self) -> None:
        ready = []
        for fd, events in self._epoll.poll(0, _ROUND_MAX):
            if self._wanted.get(fd):
                ready.append((fd, _READY_FLAGS.get(events, 0)))
            else:
                self._remove(fd)
        if ready:
            self._ready(ready)

    def _remove(self, fd: int) -> None:
        """Unregister an idle socket whose connection the receiver has closed."""
        self._wanted.pop(fd, None)
        try:
            self._epoll.unregister(fd)
        except OSError:
            # curl has closed the socket, but a forked process still has it open, so the kernel would report it forever.
            self._wanted = {fd: events for fd, events in self._wanted.items() if events}
            self.close()
            self._open()


_EPOLL_EVENTS = {
    pycurl.POLL_IN: getattr(select, "EPOLLIN", 0),
    pycurl.POLL_OUT: getattr(select, "EPOLLOUT", 0),
    pycurl.POLL_INOUT: getattr(select, "EPOLLIN", 0) | getattr(select, "EPOLLOUT", 0),
}
_READY_FLAGS = {_EPOLL_EVENTS[pycurl.POLL_IN]: pycurl.CSELECT_IN, _EPOLL_EVENTS[pycurl.POLL_OUT]: pycurl.CSELECT_OUT}
"""Other combinations (both, or an error) are passed as 0, and curl checks the socket itself."""


class LoopReadiness:
    """Uses the event loop's own methods, on systems without epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._watched: dict[int, int] = {}

    def watch(self, fd: int, wanted: int) -> None:
        self.forget(fd)
        self._watched[fd] = wanted
        if wanted & pycurl.POLL_IN:
            self._loop.add_reader(fd, self._ready, ((fd, pycurl.CSELECT_IN),))
        if wanted & pycurl.POLL_OUT:
            self._loop.add_writer(fd, self._ready, ((fd, pycurl.CSELECT_OUT),))

    def forget(self, fd: int) -> None:
        wanted = self._watched.pop(fd, 0)
        if wanted & pycurl.POLL_IN:
            self._loop.remove_reader(fd)
        if wanted & pycurl.POLL_OUT:
            self._loop.remove_writer(fd)

    def close(self) -> None:
        for fd in list(self._watched):
            self.forget(fd)
