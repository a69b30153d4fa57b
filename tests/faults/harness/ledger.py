"""The ledger: a client that sends events and durably records what it tried and what was acknowledged.

    python -m tests.faults.harness.ledger LOG PORT KEY plain=8,fan=2 --rate 100 --threads 4 [--count 500]

It runs until SIGTERM or until `--count` requests are done. A third of the requests are batches. Half of all requests
carry idempotency keys. Only those are repeated when the answer is unknown, with the same keys and the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import itertools
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

_BATCH_MAX = 20
_LINES = 5
"""The number of ordering keys, for the event type that uses them."""
_ANSWER_SECONDS_MAX = 5.0
_RETRY_PAUSE_SECONDS = 0.1
_PERSISTENCE_SECONDS = 30.0
"""How long a request with an unknown answer is repeated. The outages of the harness are shorter."""


class Draft(NamedTuple):
    event_type: str
    payload: str
    key: str | None
    ordering_key: str | None = None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.payload.encode()).hexdigest()

    @property
    def json(self) -> str:
        """Built by hand, because the payload must be sent byte for byte, including spaces."""
        key = "" if self.key is None else f', "idempotency_key": "{self.key}"'
        order = "" if self.ordering_key is None else f', "ordering_key": "{self.ordering_key}"'
        return f'{{"event_type": "{self.event_type}", "payload": {self.payload}{key}{order}}}'


class Log:
    """A log whose lines are on the disk when `write` returns."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **line: object) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fdatasync(self._file)


class Sender:
    """One connection to Doorstep, which sends one request after another."""

    def __init__(self, port: int, key: str, log: Log) -> None:
        self._port = port
        self._key = key
        self._log = log
        self._connection: http.client.HTTPConnection | None = None

    def send(self, number: int, drafts: list[Draft], *, batch: bool) -> None:
        events = [[draft.digest, draft.event_type, draft.key] for draft in drafts]
        self._log.write(line="tried", request=number, events=events)
        path = "/v1/events/batch" if batch else "/v1/events"
        listed = ", ".join(draft.json for draft in drafts)
        body = f'{{"events": [{listed}]}}' if batch else listed
        deadline = time.monotonic() + _PERSISTENCE_SECONDS
        while not self._ask(number, path, body.encode()):
            # Without a key, repeating the request would create another event. Nor does a sender repeat it forever.
            if drafts[0].key is None or time.monotonic() > deadline:
                return
            time.sleep(_RETRY_PAUSE_SECONDS)

    def _ask(self, number: int, path: str, body: bytes) -> bool:
        """Send one request. Returns True if the answer leaves no doubt whether the events were stored."""
        try:
            status, answer = self._post(path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection = None
            self._log.write(line="unknown", request=number, why=repr(error), at=time.time())
            return False
        if status == 202:
            receipts = answer.get("events", [answer])
            ids = [receipt["event_id"] for receipt in receipts]
            self._log.write(line="acknowledged", request=number, event_ids=ids, at=time.time())
            return True
        certain = status in (400, 401, 403, 404, 409, 413, 422)
        self._log.write(line="refused" if certain else "unknown", request=number, why=str(status), at=time.time())
        return certain

    def _post(self, path: str, body: bytes) -> tuple[int, Any]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_SECONDS_MAX)
        headers = {"X-API-Key": self._key, "Content-Type": "application/json"}
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())


class Author:
    """Generates events, each with a unique payload, so that a digest identifies one event."""

    def __init__(self, types: str, seed: int, run: str) -> None:
        weights = [part.split("=") for part in types.split(",")]
        self._types = [name for name, _ in weights]
        self._weights = [int(weight) for _, weight in weights]
        self._random = random.Random(seed)
        self._run = run

    def write(self, number: int) -> tuple[list[Draft], bool]:
        batch = self._random.random() < 1 / 3
        keyed = self._random.random() < 1 / 2
        count = self._random.randint(1, _BATCH_MAX) if batch else 1
        return [self._draft(f"{self._run}-{number}-{position}", keyed) for position in range(count)], batch

    def _draft(self, name: str, keyed: bool) -> Draft:
        event_type = self._random.choices(self._types, self._weights)[0]
        padding = "é \\u0000 x" * self._random.randint(0, 200)
        payload = f'{{"name":  "{name}", "padding": "{padding}"}}'
        line = f"line {self._random.randrange(_LINES)}" if event_type == "ordered" else None
        return Draft(event_type, payload, name if keyed else None, line)


def _work(sender: Sender, author: Author, numbers: Iterator[int], rate: float, stop: threading.Event) -> None:
    for number in numbers:
        if stop.is_set():
            return
        drafts, batch = author.write(number)
        sender.send(number, drafts, batch=batch)
        if rate:
            stop.wait(len(drafts) / rate)


def _main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("log", "port", "key", "types"):
        parser.add_argument(name)
    parser.add_argument("--rate", type=float, default=0.0, help="events a second, over all threads; 0 for no limit")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--count", type=int, default=10**9, help="requests in all")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log = Log(arguments.log)
    run = f"{arguments.seed}-{time.time_ns()}"
    numbers = iter(range(arguments.count))
    threads = [
        threading.Thread(
            target=_work,
            args=(
                Sender(int(arguments.port), arguments.key, log),
                Author(arguments.types, arguments.seed * 100 + index, run),
                itertools.islice(numbers, None),
                arguments.rate / arguments.threads,
                stop,
            ),
        )
        for index in range(arguments.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    _main()
