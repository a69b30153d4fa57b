"""A receiver of notifications, inside the test process. It records every request before it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Arrival(NamedTuple):
    path: str
    event_id: str
    body: Any


class Office:
    """Answers 200, except for requests to the shops, which it permanently rejects with 400."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        office = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                office.arrivals.append(Arrival(self.path, self.headers["webhook-id"], json.loads(body)))
                self.send_response(400 if self.path.startswith("/shop") else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def to(self, path: str) -> list[Arrival]:
        return [one for one in self.arrivals if one.path == path]

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def open_office() -> Iterator[Office]:
    office = Office()
    threading.Thread(target=office.serve, daemon=True).start()
    try:
        yield office
    finally:
        office.close()
