"""Sends spans to the operator's collector, in a separate thread.

The exporter never blocks the event loop. Spans are dropped if the queue is full, or if the collector does not accept
them after a few attempts. Dropped spans are counted, and a warning is logged at most once a minute and at shutdown.
Unlike deliveries, spans may be sent to any address, because the operator, not a tenant, configures the collector.
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

_ATTEMPTS_MAX = 4
_FIRST_PAUSE_SECONDS = 0.5
_WARN_SECONDS = 60.0
_BUSY = frozenset({429, 502, 503, 504})
"""The statuses that OTLP defines as retryable. All other error statuses are final."""

Warn = Callable[[str], object]


class SpanExporter:
    """Queues encoded spans, and sends them in batches from its own thread."""

    def __init__(self, collector: Collector, version: str, warn: Warn) -> None:
        self._collector = collector
        self._requests = Requests(collector.resource, version)
        self._warn = warn
        self._begin()

    def _begin(self) -> None:
        """Start with an empty queue and a new thread. Also called in a forked process, which has no thread; the parent
        sends the spans that were queued before the fork."""
        self._process = os.getpid()
        self._spans: deque[bytes] = deque()
        self._stopping = threading.Event()
        self._full = threading.Event()
        self._without_room = self._refused = 0  # each is written by only one thread
        self._trouble = ""
        self._warned, self._warned_at = 0, -_WARN_SECONDS
        self._thread = threading.Thread(target=self._run, name="doorstep-spans", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """The number of spans that did not reach the collector."""
        return self._without_room + self._refused

    def __call__(self, spans: Sequence[bytes]) -> None:
        """Queue these spans and return immediately. Called from the event loop."""
        if self._process != os.getpid():
            self._begin()
        room = max(0, self._collector.queue_max - len(self._spans))
        self._spans.extend(spans[:room])
        self._without_room += max(0, len(spans) - room)
        if len(self._spans) >= self._collector.batch_max:
            self._full.set()

    def close(self, timeout_seconds: float = 3.0) -> None:
        """Send the queued spans. If the collector does not respond, blocks for at most `timeout_seconds`."""
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
            if time.monotonic() - self._warned_at >= _WARN_SECONDS:
                self._warn_dropped()
        self._send_waiting(curl)
        self._warn_dropped()
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
            except Exception as error:  # noqa: BLE001  a span that cannot be encoded must not end the thread
                trouble = type(error).__name__
            if trouble:
                self._trouble = trouble
                self._refused += len(batch)
                if self._stopping.is_set():  # do not wait for every batch to fail
                    self._refused += len(self._spans)
                    self._spans.clear()

    def _send(self, curl: pycurl.Curl, body: bytes) -> str:
        """Send a request. Returns why the collector did not accept it, or an empty string if it did."""
        content = gzip.compress(body, 1) if self._collector.compressed else body
        pause, trouble = _FIRST_PAUSE_SECONDS, ""
        for attempt in range(_ATTEMPTS_MAX):
            if attempt and (self._stopping.wait(pause) or len(self._spans) >= self._collector.queue_max):
                break
            trouble, again = _post(curl, content)
            if not again:
                break
            pause *= 2
        return trouble

    def _warn_dropped(self) -> None:
        if (dropped := self.dropped) > self._warned:
            refused = f"the trace collector did not accept spans ({self._trouble})"
            why = refused if self._trouble else "spans are created faster than the trace collector accepts them"
            self._warned, self._warned_at, self._trouble = dropped, time.monotonic(), ""
            self._warn(f"{why}; {dropped} have been dropped so far")


def _post(curl: pycurl.Curl, content: bytes) -> tuple[str, bool]:
    """Send a request once. Returns the problem (empty if there is none; never contains the URL), and whether to
    retry."""
    curl.setopt(pycurl.POSTFIELDS, content)
    try:
        curl.perform()
    except pycurl.error as error:
        return f"curl error {error.args[0]}", True
    status = curl.getinfo(pycurl.RESPONSE_CODE)
    return ("", False) if 200 <= status < 300 else (f"it answered {status}", status in _BUSY)
