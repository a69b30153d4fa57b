"""A simulated receiver that can be made to fail: `python -m examples.counterpart`, or with the server of a profile.

It prints each request. To make a path fail, if you like with a body, and to repair it:

    curl -X PUT http://127.0.0.1:8090/automation -d 503
    curl -X PUT http://127.0.0.1:8090/automation -d '503 {"code": "BUSY"}'
    curl -X PUT http://127.0.0.1:8090/automation -d 200
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple, TypeAlias, TypeVar

PORT = 8090

Say: TypeAlias = Callable[[str], object]


def printed(line: str) -> None:
    print(line, flush=True)


class Answer(NamedTuple):
    """A response."""

    status: int = 200
    body: object = ""
    """Text is sent as it is, anything else as JSON."""
    retry_after_seconds: int | None = None


class Counterpart(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, say: Say = printed) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.say = say
        self.answers: dict[str, Answer] = {}
        """The responses on the paths that were made to fail."""
        self.received: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that tell the server of a profile where the counterpart is."""
        return {"COUNTERPART_URL": self.url}

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """The response of a counterpart that works; None if it is lost on its way. The names of headers are in lower
        case. Other counterparts override this."""
        return Answer()


class _Handler(BaseHTTPRequestHandler):
    server: Counterpart
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """A request as the receiver gets it."""
        body, headers = self._body(), {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.answers.get(self.path) or self.server.answer(self.path, headers, body)
        self.server.received[self.path] += 1
        event, count = self.headers.get("webhook-id", ""), self.server.received[self.path]
        shown = "no response" if answer is None else answer.status
        self.server.say(f"received {self.path} {event}, request {count}: {shown}")
        if answer is None:
            self.close_connection = True
        else:
            self._respond(answer)

    def do_PUT(self) -> None:
        """Choose the next responses on this path."""
        text = self._body().decode(errors="replace").strip()
        status, _, body = text.partition(" ")
        if not status.isdigit() or not 200 <= int(status) <= 599:
            self._respond(Answer(422, f"send a status from 200 to 599, got {text[:20]!r}\n"))
            return
        if text == "200":
            self.server.answers.pop(self.path, None)
        else:
            self.server.answers[self.path] = Answer(int(status), body)
        self._respond(Answer(200, f"{self.path} now answers {text}\n"))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _respond(self, answer: Answer) -> None:
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        body = text.encode()
        self.send_response(answer.status)
        self.send_header("content-length", str(len(body)))
        if answer.retry_after_seconds is not None:
            self.send_header("retry-after", str(answer.retry_after_seconds))
        self.end_headers()
        if answer.status not in (204, 304):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: `do_POST` prints what matters."""


C = TypeVar("C", bound=Counterpart)


@contextmanager
def running(counterpart_type: type[C]) -> Iterator[C]:
    """Runs a counterpart on a free local port, without its output."""
    with counterpart_type(0, lambda _: None) as counterpart:
        Thread(target=counterpart.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield counterpart
        finally:
            counterpart.shutdown()


def main(counterpart_type: type[Counterpart] = Counterpart) -> None:
    parser = argparse.ArgumentParser(description="A counterpart that can be made to fail.")
    parser.add_argument("--port", type=int, default=PORT)
    with counterpart_type(parser.parse_args().port) as counterpart:
        print(f"The {counterpart_type.__name__.lower()} listens at {counterpart.url}", flush=True)
        try:
            counterpart.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
