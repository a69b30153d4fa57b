"""The baseline of dispatch: the HTTP client alone (pycurl on an epoll loop), making the same POSTs and nothing else.

Each POST has a URL, headers, body and timeout, and its response is read with status, headers and body, as any client
must do. Nothing is signed, looked up, classified, logged or stored.
"""

from __future__ import annotations

import select
from dataclasses import dataclass
from time import monotonic, sleep

import pycurl

from bench.timing import Stopwatch

HEADERS = [
    "content-type: application/json",
    "user-agent: Doorstep/0.1",
    "x-correlation-id: 0123456789abcdef0123456789abcdef",
    "webhook-id: 01890000-0000-7000-8000-000000000001",
    "webhook-timestamp: 1700000000",
    "webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
]
"""The same number of headers as in a delivery, with the same lengths."""


@dataclass(frozen=True)
class Cost:
    """The cost of one POST or one delivery."""

    cpu_us: float
    per_second: float


def post_all(url: str, payload: bytes, count: int, connections: int) -> Cost:
    """POST `count` times over keep-alive connections. Returns the CPU of the whole process per POST."""
    client = _Client(url, payload, count, connections)
    watch = Stopwatch()
    client.run()
    return Cost(1e6 * watch.cpu_seconds / count, count / watch.wall_seconds)


def post_steadily(url: str, payload: bytes, count: int, per_second: float) -> Cost:
    """POST `count` times at a steady rate over one keep-alive connection, sleeping in between. Returns the CPU of the
    whole process per POST."""
    client = _Client(url, payload, 0, connections=1)
    watch = Stopwatch()
    for number in range(count):
        sleep(max(0.0, number / per_second - watch.wall_seconds))
        client.post_one()
    return Cost(1e6 * watch.cpu_seconds / count, count / watch.wall_seconds)


class _Client:
    def __init__(self, url: str, payload: bytes, count: int, connections: int) -> None:
        self._payload = payload
        self._left = count
        self._epoll = select.epoll()
        self._known: set[int] = set()
        self._due: float | None = 0.0
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._url = url
        self._handles = [_handle() for _ in range(connections)]
        self._answers: dict[pycurl.Curl, list[bytes]] = {}

    def post_one(self) -> None:
        self._left = 1
        self.run()

    def run(self) -> None:
        for handle in self._handles:
            self._post(handle)
        running = len(self._handles)
        while running:
            for descriptor, events in self._epoll.poll(self._timeout()):
                running = self._multi.socket_action(descriptor, _curl_events(events))[1]
            if self._due is not None and monotonic() >= self._due:
                self._due = None
                running = self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)[1]
            running += self._collect()

    def _post(self, handle: pycurl.Curl) -> int:
        if not self._left:
            return 0
        self._left -= 1
        answer = self._answers[handle] = []
        handle.setopt(pycurl.URL, self._url)
        handle.setopt(pycurl.HTTPHEADER, HEADERS)
        handle.setopt(pycurl.POSTFIELDS, self._payload)
        handle.setopt(pycurl.TIMEOUT_MS, 30_000)
        handle.setopt(pycurl.HEADERFUNCTION, answer.append)
        handle.setopt(pycurl.WRITEFUNCTION, answer.append)
        self._multi.add_handle(handle)
        return 1

    def _collect(self) -> int:
        """Complete finished requests and start the next ones on their connections; returns how many were started."""
        begun = 0
        _, done, failed = self._multi.info_read()
        if failed:
            raise RuntimeError(f"the bare client failed: {failed[0][2]}")
        for handle in done:
            if handle.getinfo(pycurl.RESPONSE_CODE) != 200 or self._answers[handle][-1] != b"ok":
                raise RuntimeError("the receiver did not answer 200 with its body")
            self._multi.remove_handle(handle)
            begun += self._post(handle)
        return begun

    def _watch(self, action: int, descriptor: int, multi: object, data: object) -> None:
        if action == pycurl.POLL_REMOVE:
            if descriptor in self._known:
                self._known.remove(descriptor)
                self._epoll.unregister(descriptor)
        elif descriptor in self._known:
            self._epoll.modify(descriptor, _EPOLL[action])
        else:
            self._known.add(descriptor)
            self._epoll.register(descriptor, _EPOLL[action])

    def _set_timer(self, milliseconds: int) -> None:
        self._due = None if milliseconds < 0 else monotonic() + milliseconds / 1_000

    def _timeout(self) -> float:
        return 1.0 if self._due is None else max(0.0, self._due - monotonic())


_EPOLL = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}


def _curl_events(events: int) -> int:
    bits = pycurl.CSELECT_IN if events & ~select.EPOLLOUT else 0
    return bits | (pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0)


def _handle() -> pycurl.Curl:
    handle = pycurl.Curl()
    handle.setopt(pycurl.POST, 1)
    handle.setopt(pycurl.NOSIGNAL, 1)
    return handle
