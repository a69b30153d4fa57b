"""A separate process that accepts traces and metrics and discards them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context


@contextmanager
def collecting() -> Iterator[str]:
    """Run the collector process, and yield its URL."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _collect(link: object) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    link.send(f"http://127.0.0.1:{server.server_address[1]}")  # type: ignore[attr-defined]
    server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
