"""The sweeper: once a minute, everything that no message announces. Two at the same time do no harm."""

from __future__ import annotations

import os
from typing import Any

from doorstep.aws.function import Function
from doorstep.aws.steps import Steps
from doorstep.services.worker import Service
from doorstep.telemetry.redaction import safe_message

_SLACK_MILLISECONDS = 10_000
"""How long before its end the function begins nothing more."""


class SweeperFunction:
    """Runs each background service of a worker until it has nothing more to do, or until the time is up."""

    def __init__(self) -> None:
        self._function = Function()
        self._steps = self._function.run(self._open())

    async def _open(self) -> Steps:
        return Steps(self._function.doorstep.components)

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, int]:
        return self._function.run(self._sweep(context))

    async def _sweep(self, context: Any) -> dict[str, int]:
        await self._steps.directory.refresh()
        done = {"messages": await self._announce()}
        async with self._steps.writing():
            return done | {service.name: await self._run(service, context) for service in self._steps.others}

    async def _announce(self) -> int:
        """Send the messages that are missing; returns their number."""
        table = self._function.table
        return 0 if table is None else await table.sweep(self._function.doorstep.clock.now())

    async def _run(self, service: Service, context: Any) -> int:
        """Run one service; returns the number of its rounds. A service that fails does not stop the others: the next
        sweep runs it again."""
        rounds = 0
        try:
            while context.get_remaining_time_in_millis() > _SLACK_MILLISECONDS:
                rounds += 1
                if await service.run_once() != 0.0:
                    break
        except Exception as error:  # noqa: BLE001  logged; see above
            self._function.doorstep.components.warn(f"{service.name} failed: {safe_message(error)}")
        return rounds


if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:  # AWS gives a starting process more processor time than a call
    handler = SweeperFunction()
