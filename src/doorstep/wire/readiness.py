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
    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._wanted = {pycurl.POLL_IN: select.EPOLLIN, pycurl.POLL_OUT: select.EPOLLOUT}
        self._wanted[pycurl.POLL_INOUT] = select.EPOLLIN | select.EPOLLOUT
        self._came = {select.EPOLLIN: pycurl.CSELECT_IN, select.EPOLLOUT: pycurl.CSELECT_OUT}
        loop.add_reader(self._epoll.fileno(), self._poll)

    def watch(self, fd: int, wanted: int) -> None:
        events = self._wanted.get(wanted, 0)
        if fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._watched.add(fd)

    def forget(self, fd: int) -> None:
        if fd in self._watched:
            self._watched.discard(fd)
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass  # curl has closed it already, and the kernel has forgotten it by itself

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _poll(self) -> None:
        # What is neither readable nor writable alone (both, or an error) is left to curl to find out.
        came = self._came.get
        self._ready([(fd, came(events, 0)) for fd, events in self._epoll.poll(0, _ROUND_MAX)])


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
