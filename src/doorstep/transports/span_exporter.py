"""Sends spans to the operator's collector: a sink of tracing with a thread of its own.

It never stands in the way: spans that find no room are dropped, and so are those that the collector does not take after
a few tries. Both are counted, and told in the log at most once a minute, and at the end. Unlike deliveries it may go to
any address: it is the operator, not a tenant, who says where the collector is.
"""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import pycurl

from doorstep.telemetry.otlp import Collector, Requests

_TRIES = 4
_FIRST_PAUSE_SECONDS = 0.5
_TELL_SECONDS = 60.0
_BUSY = frozenset({429, 502, 503, 504})
"""Answers that ask for another try; every other one that is no success is final, says OTLP."""

Warn = Callable[[str], object]


class SpanExporter:
    def __init__(self, collector: Collector, version: str, warn: Warn) -> None:
        self._collector = collector
        self._requests = Requests(collector.resource, version)
        self._warn = warn
        self._begin()

    def _begin(self) -> None:
        """Here, and in a process that was forked: no thread comes along, and what waits is for the parent to send."""
        self._process = os.getpid()
        self._spans: deque[bytes] = deque()
        self._stopping = threading.Event()
        self._full = threading.Event()
        self._without_room = self._refused = 0  # each written by one thread alone
        self._trouble = ""
        self._told, self._told_at = 0, -_TELL_SECONDS
        self._thread = threading.Thread(target=self._run, name="doorstep-spans", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many spans did not reach the collector."""
        return self._without_room + self._refused

    def __call__(self, spans: Sequence[bytes]) -> None:
        """Take these; called from the event loop, and returns at once."""
        if self._process != os.getpid():
            self._begin()
        room = max(0, self._collector.queue_max - len(self._spans))
        self._spans.extend(spans[:room])
        self._without_room += max(0, len(spans) - room)
        if len(self._spans) >= self._collector.batch_max:
            self._full.set()

    def close(self, timeout_seconds: float = 3.0) -> None:
        """Send what is waiting, but do not wait for a collector that does not answer. Blocking."""
        if self._process == os.getpid():
            self._stopping.set()
            self._full.set()
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        curl = self._prepared()
        while not self._stopping.is_set():
            self._full.wait(self._collector.delay_seconds)
            self._full.clear()
            self._send_waiting(curl)
            if time.monotonic() - self._told_at >= _TELL_SECONDS:
                self._tell_dropped()
        self._send_waiting(curl)
        self._tell_dropped()
        curl.close()

    def _prepared(self) -> pycurl.Curl:
        curl, collector = pycurl.Curl(), self._collector
        packed = ["content-encoding: gzip"] if collector.compressed else []
        curl.setopt(pycurl.URL, collector.url)
        curl.setopt(pycurl.HTTPHEADER, ["content-type: application/x-protobuf", "expect:", *packed, *collector.headers])
        curl.setopt(pycurl.TIMEOUT_MS, int(collector.timeout_seconds * 1_000))
        curl.setopt(pycurl.WRITEFUNCTION, lambda content: len(content))
        curl.setopt(pycurl.NOSIGNAL, 1)
        if collector.certificate is not None:
            curl.setopt(pycurl.CAINFO, collector.certificate)
        return curl

    def _send_waiting(self, curl: pycurl.Curl) -> None:
        while self._spans:
            batch = [self._spans.popleft() for _ in range(min(self._collector.batch_max, len(self._spans)))]
            try:
                trouble = self._send(curl, self._requests.request(batch))
            except Exception as error:  # noqa: BLE001  a span that cannot be written must not end the thread
                trouble = type(error).__name__
            if trouble:
                self._trouble = trouble
                self._refused += len(batch)
                if self._stopping.is_set():  # nobody waits for it to fail once more for each batch
                    self._refused += len(self._spans)
                    self._spans.clear()

    def _send(self, curl: pycurl.Curl, body: bytes) -> str:
        """Why it was not taken; empty if it was."""
        content, pause, trouble = (
            gzip.compress(body, 1) if self._collector.compressed else body,
            _FIRST_PAUSE_SECONDS,
            "",
        )
        for attempt in range(_TRIES):
            if attempt and (self._stopping.wait(pause) or len(self._spans) >= self._collector.queue_max):
                break
            trouble, again = _post(curl, content)
            if not again:
                break
            pause *= 2
        return trouble

    def _tell_dropped(self) -> None:
        if (dropped := self.dropped) > self._told:
            refused = f"the collector of traces did not take spans ({self._trouble})"
            why = refused if self._trouble else "spans are made faster than the collector of traces takes them"
            self._told, self._told_at, self._trouble = dropped, time.monotonic(), ""
            self._warn(f"{why}; {dropped} were dropped so far")


def _post(curl: pycurl.Curl, content: bytes) -> tuple[str, bool]:
    """What went wrong, in words without the URL, and whether it is worth another try."""
    curl.setopt(pycurl.POSTFIELDS, content)
    try:
        curl.perform()
    except pycurl.error as error:
        return f"curl error {error.args[0]}", True
    status = curl.getinfo(pycurl.RESPONSE_CODE)
    return ("", False) if 200 <= status < 300 else (f"it answered {status}", status in _BUSY)
