"""DynamoStore: its life cycle, and the parts that it does not offer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import ConfigError, StoreUnavailable
from doorstep.stores.dynamodb.announced import AnnouncedVerbs
from doorstep.stores.dynamodb.client import Aws, TableInUse, TableMissing
from doorstep.stores.dynamodb.features import FEATURES, not_offered
from doorstep.stores.dynamodb.options import options_from
from doorstep.stores.dynamodb.queue import Queue
from doorstep.stores.dynamodb.tables import INDEXES, TTL_ATTRIBUTE, key_schema, table_definition
from doorstep.stores.dynamodb.waits import WaitVerbs
from doorstep.stores.program_sql import NO_DEFINITIONS, SqlDefinitions
from doorstep.stores.store import Part, Topic

_READY_TRIES = 120
_READY_PAUSE_SECONDS = 0.5


class DynamoStore(AnnouncedVerbs, WaitVerbs):
    features = FEATURES
    aggregate_max: ClassVar[int] = 100

    def __init__(self, url: str) -> None:
        super().__init__()
        self.options = options_from(url)

    # -- life cycle ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        aws = Aws(self.options)
        try:
            await _check_table(aws)
            self._queue = None if self.options.queue is None else await Queue.open(aws, self.options.queue)
        except BaseException:
            aws.close()
            raise
        self._opened, self._writing = aws, asyncio.Lock()  # the event loop may be another one than before

    async def close(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            await queue.close()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    async def migrate(self, definitions: SqlDefinitions = NO_DEFINITIONS) -> None:
        """Create the table with its indexes if it does not exist. Definitions in SQL do not apply."""
        aws = Aws(self.options)
        try:
            await _create_table(aws)
        finally:
            aws.close()

    async def time(self) -> Instant:
        """The time of this machine: DynamoDB has no clock to read. Machines on AWS follow Amazon's time service."""
        return time.time_ns() // 1_000

    def on_wakeup(self, topic: Topic, wake: Callable[[], None]) -> None:
        self._wakes[topic].append(wake)

    def wake_others(self, topic: Topic) -> None:
        """Do nothing: messages of the queue and polling reach other processes."""

    async def announce_posts(self, wanted: bool) -> bool:
        raise not_offered(Part.OUTBOX)

    async def any_waiting(self, topic: Topic) -> bool:
        return False

    # -- parts that belong to the sender's SQL database or to CloudWatch ------------------------------------

    def post_on(self, connection: object, message: object, wake: Callable[[], None]) -> Awaitable[None] | None:
        raise not_offered(Part.OUTBOX)

    async def outbox(self, limit: int) -> list[Any]:
        return []

    async def clear_outbox(self, event_ids: Sequence[UUID]) -> None:
        raise not_offered(Part.OUTBOX)

    async def reject(self, event_id: UUID, reason: str, now: Instant) -> None:
        raise not_offered(Part.OUTBOX)

    async def requeue(self, event_ids: Sequence[UUID], entry: object) -> list[Any]:
        raise not_offered(Part.OUTBOX)

    async def discard(self, event_ids: Sequence[UUID], entry: object) -> list[Any]:
        raise not_offered(Part.OUTBOX)

    async def put_entity(self, *arguments: object, **options: object) -> bool:
        raise not_offered(Part.PIPELINES)

    async def delete_entity(self, *arguments: object, **options: object) -> None:
        raise not_offered(Part.PIPELINES)

    async def clean_entities(self, *arguments: object) -> tuple[int, str | None]:
        raise not_offered(Part.PIPELINES)

    async def write_alerts(self, write: object) -> bool:
        raise not_offered(Part.ALERTS)

    async def step_bulk(self, *arguments: object, **options: object) -> None:
        raise not_offered(Part.BULK)

    async def aggregate(
        self, now: Instant, limit: int | None = None, *, minutes_before: Instant = 0, hours_before: Instant = 0
    ) -> int:
        return 0

    async def figures(self, *arguments: object, **options: object) -> dict[Any, Any]:
        raise not_offered(Part.STATISTICS)

    async def series(self, *arguments: object, **options: object) -> dict[Any, Any]:
        raise not_offered(Part.STATISTICS)


# -- the table ---------------------------------------------------------------------------------------------


async def _describe(aws: Aws) -> dict[str, Any] | None:
    try:
        return (await aws.call("DescribeTable", TableName=aws.table))["Table"]  # type: ignore[no-any-return]
    except TableMissing:
        return None


async def _check_table(aws: Aws) -> None:
    """Raise ConfigError unless the table has the keys and indexes that this version needs."""
    described = await _describe(aws)
    if described is None:
        raise ConfigError(
            f"the DynamoDB table {aws.table} must exist, got none; run doorstep migrate, or create it with deploy/aws"
        )
    wanted = table_definition(aws.table)
    if described["KeySchema"] != wanted["KeySchema"]:
        raise ConfigError(
            f"the DynamoDB table {aws.table} must have the keys pk and sk, and has others; use a table of its own"
        )
    found = {one["IndexName"]: one["KeySchema"] for one in described.get("GlobalSecondaryIndexes", [])}
    for index in INDEXES:
        if found.get(index.name) != key_schema(index.partition_key, index.sort_key):
            raise ConfigError(
                f"the DynamoDB table {aws.table} must have the index {index.name} with the keys"
                f" {index.partition_key} and {index.sort_key}; create it with deploy/aws"
            )


async def _create_table(aws: Aws) -> None:
    if await _describe(aws) is None:
        with suppress(TableInUse):  # another process creates it
            await aws.call("CreateTable", **table_definition(aws.table))
        await _wait_until_active(aws)
        ttl = {"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
        await aws.call("UpdateTimeToLive", TableName=aws.table, TimeToLiveSpecification=ttl)
    await _check_table(aws)


async def _wait_until_active(aws: Aws) -> None:
    for _ in range(_READY_TRIES):
        described = await _describe(aws)
        if described is not None and described["TableStatus"] == "ACTIVE":
            return
        await asyncio.sleep(_READY_PAUSE_SECONDS)
    raise StoreUnavailable(f"the DynamoDB table {aws.table} was created and is not active yet; try again")
