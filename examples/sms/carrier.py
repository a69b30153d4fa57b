"""A simulated carrier for the example and its tests: an HTTP server with its own error codes.

It recognizes a batch by its id. If an answer is lost and Doorstep submits the same batch again, the carrier sends the
messages only once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

_NUMBER = re.compile(r"\+[1-9]\d{6,14}")


class Answer(NamedTuple):
    status: int
    body: dict[str, object] | str
    retry_after_seconds: int | None = None


def refusal(status: int, code: str, text: str, retry_after_seconds: int | None = None) -> Answer:
    return Answer(status, {"code": code, "text": text}, retry_after_seconds)


WRONG_KEY = refusal(401, "AUTH-01", "unknown API key")
TOO_MANY = refusal(429, "RATE-02", "too many batches", 120)
BUSY = refusal(503, "BUSY-03", "all lines are busy")
NO_NUMBER = refusal(422, "NUM-04", "a recipient is not a phone number")
PROXY_ALONE = Answer(502, "<h1>Bad Gateway</h1>")
REJECTED = refusal(409, "REJ-05", "the batch was rejected")


class Carrier:
    """Gives the configured answers first; after that, it accepts every valid batch."""

    def __init__(self) -> None:
        self.api_key = "carrier-key"
        self.script: list[Answer] = []
        """The answers to the next requests, whatever these requests contain."""
        self.references: dict[str, str] = {}
        """The carrier's reference for each accepted batch, by batch id."""
        self.lost_answers = 0
        """How many of the next answers are lost before they reach the client."""
        self.requests = 0
        self.url = ""

    def judge(self, api_key: str, batch: dict[str, Any]) -> Answer:
        self.requests += 1
        if self.script:
            return self.script.pop(0)
        if api_key != self.api_key:
            return WRONG_KEY
        if not all(_NUMBER.fullmatch(message["to"]) for message in batch["messages"]):
            return NO_NUMBER
        reference = self.references.setdefault(batch["batch_id"], f"C-{len(self.references) + 1}")
        return Answer(202, {"reference": reference, "messages": len(batch["messages"])})


@contextmanager
def carrying() -> Iterator[Carrier]:
    """Runs a carrier on a free local port."""
    carrier = Carrier()

    class Desk(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = carrier.judge(self.headers["x-carrier-key"], json.loads(body))
            if carrier.lost_answers:
                carrier.lost_answers -= 1
                return
            self.send_response(answer.status)
            if answer.retry_after_seconds is not None:
                self.send_header("retry-after", str(answer.retry_after_seconds))
            self.end_headers()
            said = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
            self.wfile.write(said.encode())

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        carrier.url = f"http://127.0.0.1:{server.server_port}/batches"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield carrier
        finally:
            server.shutdown()
