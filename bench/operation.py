"""A bulk operation through the API: start, watch, pause, resume, cancel."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from bench.serving import Client

_LOOK_SECONDS = 0.1
_SECONDS_MAX = 900


class Operation:
    def __init__(self, client: Client, bulk_id: str) -> None:
        self._client = client
        self._path = f"/v1/bulk/{bulk_id}"

    @classmethod
    def retry_all(cls, port: int) -> Self:
        """Start a retry of all dead letters."""
        client = Client(port)
        return cls(client, client.call("POST", "/v1/dead-letters/bulk-retry", b'{"all": true}')["bulk_id"])

    def steer(self, verb: str) -> None:
        """Pause, resume or cancel the operation. `verb` is `pause`, `resume` or `cancel`."""
        self._client.call("POST", f"{self._path}/{verb}")

    def await_taken(self, count: int) -> None:
        self._await(lambda bulk: bulk["taken"] >= count)

    def await_end(self) -> Any:
        """Wait until all results are in; returns the operation."""
        return self._await(lambda bulk: bulk["finished_at"] is not None)

    def _await(self, condition: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + _SECONDS_MAX
        while not condition(bulk := self._client.call("GET", self._path)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the bulk operation makes no progress: {bulk}")
            time.sleep(_LOOK_SECONDS)
        return bulk
