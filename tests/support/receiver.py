"""A webhook receiver on this machine, in a thread of the test process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.support.patience import PATIENCE_SECONDS
from tests.support.post_server import PostServer, at_work


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver(PostServer):
    """Answers 200 by default; when `hold` is cleared, answers wait until it is set again."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[Received] = []
        self.hold = threading.Event()
        self.hold.set()

    @property
    def url(self) -> str:
        return f"{self.origin}/hook"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.received.append(Received(path, headers, body))
        self.hold.wait(PATIENCE_SECONDS)


@contextmanager
def receiving() -> Iterator[Receiver]:
    with at_work(Receiver()) as receiver:
        try:
            yield receiver
        finally:
            receiver.hold.set()
