"""Watching curl's sockets: idle ones, closed ones, and those that the kernel would report forever."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Sequence

import pycurl
import pytest

from doorstep.transports.curl_loop import EpollReadiness, LoopReadiness

Kind = type[EpollReadiness] | type[LoopReadiness]


class Watch:
    """A readiness watcher of either kind, and the sockets that it reported."""

    def __init__(self, kind: Kind) -> None:
        self.reported: list[tuple[int, int]] = []
        self.readiness = kind(asyncio.get_running_loop(), self._ready)

    def _ready(self, ready: Sequence[tuple[int, int]]) -> None:
        self.reported.extend(ready)

    async def turns(self, count: int = 10) -> list[tuple[int, int]]:
        """The sockets reported during the next `count` turns of the event loop."""
        self.reported.clear()
        for _ in range(count):
            await asyncio.sleep(0)
        return self.reported


@pytest.fixture(params=[EpollReadiness, LoopReadiness])
async def watch(request: pytest.FixtureRequest) -> AsyncIterator[Watch]:
    watch = Watch(request.param)
    yield watch
    watch.readiness.close()


@pytest.fixture
async def epoll_watch() -> AsyncIterator[Watch]:
    watch = Watch(EpollReadiness)
    yield watch
    watch.readiness.close()


async def test_a_socket_is_reported_for_what_is_wanted_of_it_and_no_longer_when_forgotten(watch: Watch) -> None:
    here, there = socket.socketpair()
    with here, there:
        watch.readiness.watch(here.fileno(), pycurl.POLL_OUT)
        assert set(await watch.turns()) == {(here.fileno(), pycurl.CSELECT_OUT)}
        watch.readiness.watch(here.fileno(), pycurl.POLL_IN)
        assert await watch.turns() == []
        there.send(b"x")
        assert set(await watch.turns()) == {(here.fileno(), pycurl.CSELECT_IN)}
        watch.readiness.forget(here.fileno())
        assert await watch.turns() == []
        watch.readiness.watch(here.fileno(), pycurl.POLL_IN)
        assert set(await watch.turns()) == {(here.fileno(), pycurl.CSELECT_IN)}


async def test_a_new_socket_with_the_number_of_a_closed_one_is_watched(watch: Watch) -> None:
    old, old_peer = socket.socketpair()
    new, new_peer = socket.socketpair()
    number = old.fileno()
    watch.readiness.watch(number, pycurl.POLL_IN)
    watch.readiness.forget(number)
    os.dup2(new.detach(), number)  # closes the old socket
    watch.readiness.watch(number, pycurl.POLL_IN)
    new_peer.send(b"x")
    assert set(await watch.turns()) == {(number, pycurl.CSELECT_IN)}
    watch.readiness.forget(number)
    for end in (old, old_peer, new_peer):
        end.close()


async def test_a_connection_that_is_closed_while_it_rests_does_not_keep_the_event_loop_busy(
    epoll_watch: Watch,
) -> None:
    here, there = socket.socketpair()
    with here:
        epoll_watch.readiness.watch(here.fileno(), pycurl.POLL_IN)
        epoll_watch.readiness.forget(here.fileno())
        there.close()
        assert await epoll_watch.turns() == []
        assert is_quiet(epoll_watch)


async def test_a_closed_socket_that_another_process_holds_open_is_got_rid_of_and_the_others_stay_watched(
    epoll_watch: Watch,
) -> None:
    here, there = socket.socketpair()
    other, other_peer = socket.socketpair()
    held = os.dup(here.fileno())  # as a forked process would hold it
    for end in (here, other):
        epoll_watch.readiness.watch(end.fileno(), pycurl.POLL_IN)
    epoll_watch.readiness.forget(here.fileno())
    here.close()
    there.send(b"x")
    assert not is_quiet(epoll_watch)
    assert await epoll_watch.turns() == [] and is_quiet(epoll_watch)
    other_peer.send(b"x")
    assert set(await epoll_watch.turns()) == {(other.fileno(), pycurl.CSELECT_IN)}
    os.close(held)
    for end in (there, other, other_peer):
        end.close()


def is_quiet(watch: Watch) -> bool:
    assert isinstance(watch.readiness, EpollReadiness)
    return not select.select([watch.readiness._epoll], [], [], 0)[0]
