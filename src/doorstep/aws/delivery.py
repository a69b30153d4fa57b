"""The delivery function: SQS calls it with the keys of deliveries that are due. It claims them, sends, and settles.

A message is removed when the function has looked at what is due, whatever becomes of the attempts: a retry has a message
of its own. SQS keeps a message that cannot be read, and all messages if the store does not answer. It offers them again,
and moves them to its dead-letter queue after five times.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from doorstep.aws.function import Function
from doorstep.aws.steps import Steps
from doorstep.errors import InvalidInput
from doorstep.stores.dynamodb.messages import DueMessage, decode

Record = dict[str, Any]
"""A message as Lambda passes it on."""


class DeliveryFunction:
    """Makes the attempts that one batch of messages announces, at the same time."""

    def __init__(self) -> None:
        self._function = Function()
        self._steps = self._function.run(self._open())

    async def _open(self) -> Steps:
        return Steps(self._function.doorstep.components)

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, list[dict[str, str]]]:
        """Returns the messages that SQS shall keep."""
        kept = self._function.run(self._deliver(event["Records"]))
        return {"batchItemFailures": [{"itemIdentifier": record["messageId"]} for record in kept]}

    async def _deliver(self, records: Sequence[Record]) -> list[Record]:
        messages = [self._message(record) for record in records]
        if readable := [message for message in messages if message is not None]:
            await self._attempt(readable)
        return [record for record, message in zip(records, messages, strict=True) if message is None]

    def _message(self, record: Record) -> DueMessage | None:
        """The message in a record; None if it cannot be read."""
        try:
            return decode(record["body"])
        except InvalidInput as error:
            now, telemetry = self._function.doorstep.clock.now(), self._function.doorstep.telemetry
            count = record["attributes"]["ApproximateReceiveCount"]
            telemetry.note(now, "error", str(error), message_id=record["messageId"], receive_count=int(count))
            return None

    async def _attempt(self, messages: Sequence[DueMessage]) -> None:
        if self._function.table is not None:
            self._function.table.announced = messages
        await self._steps.directory.refresh()
        async with self._steps.writing():
            await self._steps.deliverer.round()


if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:  # AWS gives a starting process more processor time than a call
    handler = DeliveryFunction()
