"""A function between its calls: an open Doorstep, its event loop, and its log.

AWS freezes the process between two calls, so nothing may be left to write when a call ends: lines are written at once,
and there are no background loops. AWS may end the process at any moment; leases and the sweeper cover for that.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from doorstep.aws.environment import program
from doorstep.config import secrets_of
from doorstep.telemetry.embedded_metrics import EmbeddedMetrics
from doorstep.telemetry.facts import RANKS, Fact, json_format, level_of
from doorstep.telemetry.logs import route_standard_logging, without

if TYPE_CHECKING:
    from doorstep.stores.dynamodb.store import DynamoStore

T = TypeVar("T")

_BACKGROUND_SECONDS_MAX = 5.0
"""How long a call waits for what it left to the background. What is lost then is found by the sweeper."""


class Function:
    """Opens the program of this function when the process starts. `run` is for one call."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.doorstep = program(os.environ)
        settings = self.doorstep.settings
        self.metrics = EmbeddedMetrics(settings.metrics_namespace, settings.service_name)
        self._format = json_format(settings.service_name, self.doorstep.server.log_lines)
        self._secrets = secrets_of(settings)
        self._rank = RANKS[settings.log_level]
        route_standard_logging(self.log, settings.log_level)
        self.doorstep.telemetry.failures = None  # this log has them
        self.doorstep.telemetry.subscribe(self.log)
        self.doorstep.telemetry.subscribe(self.metrics)
        self.loop.run_until_complete(self.doorstep.open(migrate=False))
        if self.table is not None:
            self.table.is_called = True

    @property
    def table(self) -> DynamoStore | None:
        """The store, if it is a table on AWS."""
        if not self.doorstep.settings.database_url.startswith("dynamodb://"):
            return None
        return cast("DynamoStore", self.doorstep.components.store)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one call to its end."""
        try:
            return self.loop.run_until_complete(work)
        finally:
            self.finish()

    def finish(self) -> None:
        """End what the call has left to the background, such as sending messages, and write its metrics."""
        if tasks := asyncio.all_tasks(self.loop):
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=_BACKGROUND_SECONDS_MAX))
        _write(self.metrics.lines(self.doorstep.clock.now()))

    def log(self, facts: Sequence[Fact]) -> None:
        """Write facts as lines, without secrets. Standard output is the log of a function."""
        logged = [fact for fact in facts if RANKS[level_of(fact)] >= self._rank]
        lines = self._format(logged)
        if self._secrets.found_in(lines):
            lines = self._format([without(fact, self._secrets) for fact in logged])
        _write(lines)


def _write(lines: bytes) -> None:
    """One write for each line: CloudWatch makes one entry of each write, and reads metrics only from a single line."""
    for line in lines.splitlines():
        sys.stdout.write(line.decode() + "\n")
    if lines:
        sys.stdout.flush()
