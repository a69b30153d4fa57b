"""The SQS queue: wakes workers when something is due, and carries delays of up to 900 seconds.

A message is only a hint, so nothing here can lose or repeat a delivery. Messages are sent after the write that they
announce, in the background; if that fails, the write stands, and the sweeper announces the delivery again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from doorstep.clock import Instant
from doorstep.errors import ConfigError, DoorstepError, StoreError
from doorstep.model.delivery import DeliveryState
from doorstep.stores.dynamodb.client import Aws
from doorstep.stores.dynamodb.messages import BATCH_MAX, DueMessage, decode, delay_seconds, encode
from doorstep.stores.dynamodb.rows import DeliveryRow

_WAIT_SECONDS = 4
"""How long one request waits for messages: less than the read timeout of the client."""
_PAUSE_SECONDS = 1.0
"""The pause after a request that failed."""


class Queue:
    def __init__(self, aws: Aws, url: str) -> None:
        self._aws = aws
        self.url = url
        self._tasks: set[asyncio.Task[None]] = set()
        self._receiving: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, aws: Aws, name: str) -> Queue:
        """The queue with this name or URL."""
        if name.startswith("http"):
            return cls(aws, name)
        try:
            return cls(aws, (await aws.call("GetQueueUrl", QueueName=name))["QueueUrl"])
        except StoreError as error:
            raise ConfigError(f"database_url: the SQS queue {name} must exist; {error}") from None

    async def close(self) -> None:
        """Stop receiving, and send what still has to be sent."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_WAIT_SECONDS)

    # -- sending -------------------------------------------------------------------------------------------

    def announce(self, rows: Iterable[DeliveryRow], now: Instant) -> None:
        """Send a message for each delivery that is due within 900 seconds, in the background."""
        messages = announcements(rows, now)
        if messages:
            task = asyncio.create_task(self._send_quietly(messages))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send_quietly(self, messages: Sequence[tuple[DueMessage, int]]) -> None:
        with suppress(DoorstepError):  # the sweeper announces them again
            await self.send(messages)

    async def send(self, messages: Sequence[tuple[DueMessage, int]]) -> None:
        """Send messages with their delays. Those that a request did not take are sent again."""
        for at in range(0, len(messages), BATCH_MAX):
            left = {
                str(number): {"Id": str(number), "MessageBody": encode(message), "DelaySeconds": delay}
                for number, (message, delay) in enumerate(messages[at : at + BATCH_MAX])
            }
            for _ in range(_SENDS_MAX):
                answer = await self._aws.call("SendMessageBatch", QueueUrl=self.url, Entries=list(left.values()))
                left = {one["Id"]: left[one["Id"]] for one in answer.get("Failed", [])}
                if not left:
                    break

    # -- receiving -----------------------------------------------------------------------------------------

    def receive(self, wake: Callable[[], None]) -> None:
        """Begin to wait for messages, unless this process does so already. Each one calls `wake`."""
        if self._receiving is None or self._receiving.done():
            self._receiving = asyncio.create_task(self._keep_receiving(wake))

    async def _keep_receiving(self, wake: Callable[[], None]) -> None:
        while True:
            try:
                found = await self._receive()
            except DoorstepError:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if found:
                wake()

    async def _receive(self) -> list[DueMessage]:
        """Wait for messages and delete them: the worker finds in the table what is due. A message that is not ours stays
        until the queue moves it to its own dead letters, for people to look at."""
        answer = await self._aws.call(
            "ReceiveMessage", QueueUrl=self.url, MaxNumberOfMessages=BATCH_MAX, WaitTimeSeconds=_WAIT_SECONDS
        )
        found: list[DueMessage] = []
        entries: list[dict[str, Any]] = []
        for message in answer.get("Messages", []):
            with suppress(DoorstepError):
                found.append(decode(message["Body"]))
                entries.append({"Id": str(len(entries)), "ReceiptHandle": message["ReceiptHandle"]})
        if entries:
            await self._aws.call("DeleteMessageBatch", QueueUrl=self.url, Entries=entries)
        return found


_SENDS_MAX = 5


def announcements(rows: Iterable[DeliveryRow], now: Instant) -> list[tuple[DueMessage, int]]:
    """The messages of waiting deliveries that are due within 900 seconds, with their delays."""
    found = []
    for row in rows:
        one = row.delivery
        if one.state is DeliveryState.PENDING and one.due_at is not None:
            delay = delay_seconds(one.due_at, now)
            if delay is not None:
                found.append((DueMessage(one.event_id, one.delivery_id, row.version), delay))
    return found
