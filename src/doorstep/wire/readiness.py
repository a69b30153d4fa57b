"""Tells which of curl's sockets are ready, from inside the event loop.

On Linux the sockets live in an epoll set of their own, and the event loop watches that set as one single reader:
a round of many ready sockets is one wake-up, whichever event loop runs. Elsewhere the loop watches each socket.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Sequence
from typing import Protocol

import pycurl

Ready = Callable[[Sequence[tuple[int, int]]], None]
"""Called with pairs of socket and what it is ready for, in curl's own flags."""

_ROUND_MAX = 128
"""Sockets served in one round, so that the event loop gets its turn again within about 2 ms; the rest stay ready."""


class Readiness(Protocol):
    def watch(self, fd: int, wanted: int) -> None:
        """Watch a socket for what curl wants of it (its `POLL_*` flags); replaces what was wanted before."""

    def forget(self, fd: int) -> None: ...

    def close(self) -> None: ...


def readiness(loop: asyncio.AbstractEventLoop, ready: Ready) -> Readiness:
    return EpollReadiness(loop, ready) if hasattr(select, "epoll") else LoopReadiness(loop, ready)


class EpollReadiness:
    """A socket that rests between two requests stays in the set: to take it out and in again costs 5 µs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._wanted: dict[int, int] = {}
        """What is wanted of each socket in the set; 0 of those at rest."""
        self._open()

    def watch(self, fd: int, wanted: int) -> None:
        events = _EPOLL_EVENTS.get(wanted, 0)
        known = fd in self._wanted
        self._wanted[fd] = events
        if known:
            try:
                self._epoll.modify(fd, events)
                return
            except FileNotFoundError:
                pass  # the socket at rest was closed, and a new one has got its number
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
                ready.append((fd, _CAME.get(events, 0)))
            else:
                self._take_out(fd)
        if ready:
            self._ready(ready)

    def _take_out(self, fd: int) -> None:
        """The receiver has closed a connection at rest."""
        self._wanted.pop(fd, None)
        try:
            self._epoll.unregister(fd)
        except OSError:
            # Closed by curl, but a forked process still holds it open: the kernel would report it for ever.
            self._wanted = {fd: events for fd, events in self._wanted.items() if events}
            self.close()
            self._open()


_EPOLL_EVENTS = {
    pycurl.POLL_IN: getattr(select, "EPOLLIN", 0),
    pycurl.POLL_OUT: getattr(select, "EPOLLOUT", 0),
    pycurl.POLL_INOUT: getattr(select, "EPOLLIN", 0) | getattr(select, "EPOLLOUT", 0),
}
_CAME = {_EPOLL_EVENTS[pycurl.POLL_IN]: pycurl.CSELECT_IN, _EPOLL_EVENTS[pycurl.POLL_OUT]: pycurl.CSELECT_OUT}
"""What is neither readable nor writable alone (both, or an error) is left to curl to find out."""


class LoopReadiness:
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
