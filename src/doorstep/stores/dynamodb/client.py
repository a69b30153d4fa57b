"""Calls to AWS: in threads, with retries, counted, and with AWS's errors turned into Doorstep's.

The only module that imports botocore (which boto3 is built on, and which the Lambda runtime contains). Throttled and
interrupted calls are repeated with backoff and jitter. That is safe for every write: a transaction carries a token by
which DynamoDB recognizes its repetition, and all other writes have the same effect when they are repeated.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from random import random
from typing import Any, cast
from uuid import uuid4

import botocore.exceptions
import botocore.session
from botocore.config import Config

from doorstep.errors import ConfigError, StoreUnavailable
from doorstep.stores.dynamodb.options import Options
from doorstep.stores.dynamodb.tables import PARTITION_KEY, SORT_KEY, TableIndex

Item = dict[str, Any]
"""An item in the form in which DynamoDB's API writes it: `{"name": {"S": "value"}}`."""
Key = tuple[str, str]
"""A partition key and a sort key."""

THREADS = 48
"""How many calls run at the same time. A call waits for the network nearly all the time."""
TRANSACTION_ITEMS_MAX = 100
BATCH_GET_MAX = 100
ITEM_BYTES_MAX = 400 * 1024
_TRIES = 8
_PAUSE_SECONDS = 0.025
"""The first pause before a repetition. Each pause is up to twice as long as the one before, 3.2 s in total."""
_CONNECT_SECONDS = 2
_READ_SECONDS = 10

_REPEATABLE = frozenset(
    {
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "ServiceUnavailable",
        "ThrottlingException",
        "TransactionInProgressException",
    }
)
"""Errors of a call that may succeed when it is repeated."""
_CONDITION = "ConditionalCheckFailed"
_CANCELLED_FOR_NOW = frozenset({"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})
WRITES = ("DeleteItem", "PutItem", "TransactWriteItems")
"""The operations that write items."""


_METHODS = {
    "BatchGetItem": ("dynamodb", "batch_get_item"),
    "CreateTable": ("dynamodb", "create_table"),
    "DeleteItem": ("dynamodb", "delete_item"),
    "DescribeTable": ("dynamodb", "describe_table"),
    "GetItem": ("dynamodb", "get_item"),
    "PutItem": ("dynamodb", "put_item"),
    "Query": ("dynamodb", "query"),
    "TransactWriteItems": ("dynamodb", "transact_write_items"),
    "UpdateTimeToLive": ("dynamodb", "update_time_to_live"),
    "DeleteMessageBatch": ("sqs", "delete_message_batch"),
    "GetQueueUrl": ("sqs", "get_queue_url"),
    "ReceiveMessage": ("sqs", "receive_message"),
    "SendMessageBatch": ("sqs", "send_message_batch"),
}
"""The service and the method of each operation."""


@cache
def _session() -> Any:
    """One for the process: it keeps the descriptions of the services, which take 0.2 s of CPU time to read."""
    return botocore.session.get_session()


class ConditionFailed(Exception):
    """An item was not in the state that a write required. `failed` are the positions of these writes."""

    def __init__(self, failed: Sequence[int]) -> None:
        super().__init__(f"the conditions of writes {list(failed)} failed")
        self.failed = tuple(failed)


class Aws:
    """The table and the queue of one store."""

    def __init__(self, options: Options) -> None:
        self.table = options.table
        self._options = options
        self.calls: Counter[str] = Counter()
        """How many requests were sent, by operation."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="aws")
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            max_pool_connections=THREADS,
            retries={"total_max_attempts": 1},
            parameter_validation=False,
        )
        try:
            self._clients = {
                service: _session().create_client(
                    service, region_name=options.region, endpoint_url=options.endpoint_url, config=config
                )
                for service in (["dynamodb"] if options.queue is None else ["dynamodb", "sqs"])
            }
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise ConfigError(f"database_url: AWS cannot be used: {error}; check the region") from None

    def close(self) -> None:
        self._threads.shutdown(wait=False)  # calls under way still end
        for client in self._clients.values():
            client.close()

    async def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Send a request, and repeat it while AWS asks for that. Raises StoreUnavailable if it keeps failing."""
        for number in range(_TRIES):
            try:
                return await self._once(operation, arguments)
            except botocore.exceptions.ClientError as error:
                failure = _judge(operation, error)
                if failure is not None:
                    raise failure from None
                last: Exception = error
            except botocore.exceptions.NoCredentialsError:
                raise ConfigError("AWS credentials must be available, got none; set AWS_PROFILE or a role") from None
            except (botocore.exceptions.BotoCoreError, OSError) as error:
                last = error
            if number < _TRIES - 1:
                await asyncio.sleep(_PAUSE_SECONDS * 2**number * random())
        raise StoreUnavailable(f"{operation} failed {_TRIES} times: {last}") from last

    async def _once(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.calls[operation] += 1
        loop = asyncio.get_running_loop()
        try:
            return cast(
                dict[str, Any],
                await loop.run_in_executor(self._threads, partial(self._method(operation), **arguments)),
            )
        except RuntimeError as error:  # the threads are gone
            raise StoreUnavailable("the store is closed") from error

    def _method(self, operation: str) -> Callable[..., Any]:
        service, name = _METHODS[operation]
        return cast(Callable[..., Any], getattr(self._clients[service], name))

    # -- items ---------------------------------------------------------------------------------------------

    async def get(self, key: Key) -> Item | None:
        """An item, as of now."""
        found = await self.call("GetItem", TableName=self.table, Key=key_of(key), ConsistentRead=True)
        return found.get("Item")

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """The items that exist, as of now. What one request leaves unprocessed, the next asks for."""
        wanted = list(dict.fromkeys(keys))
        parts = [wanted[at : at + BATCH_GET_MAX] for at in range(0, len(wanted), BATCH_GET_MAX)]
        found = await asyncio.gather(*map(self._get_part, parts))
        return {key_from(item): item for items in found for item in items}

    async def _get_part(self, keys: Sequence[Key]) -> list[Item]:
        items: list[Item] = []
        left: dict[str, Any] = {self.table: {"Keys": [key_of(key) for key in keys], "ConsistentRead": True}}
        pause = _PAUSE_SECONDS
        while left:
            answer = await self.call("BatchGetItem", RequestItems=left)
            items += answer.get("Responses", {}).get(self.table, [])
            left = answer.get("UnprocessedKeys") or {}
            if left:
                await asyncio.sleep(pause * random())
                pause = min(pause * 2, 1.0)
        return items

    async def put(self, item: Item) -> None:
        """Write an item, whatever is stored. Repeating this changes nothing."""
        await self.call("PutItem", TableName=self.table, Item=item)

    async def delete(self, key: Key) -> None:
        await self.call("DeleteItem", TableName=self.table, Key=key_of(key))

    async def transact(self, writes: Sequence[dict[str, Any]]) -> None:
        """Make all of these writes or none, in this table. Raises ConditionFailed if a condition is not met."""
        assert 0 < len(writes) <= TRANSACTION_ITEMS_MAX, f"{len(writes)} writes in a transaction"
        for write in writes:
            for arguments in write.values():
                arguments["TableName"] = self.table
        await self.call("TransactWriteItems", TransactItems=writes, ClientRequestToken=str(uuid4()))

    async def query(
        self,
        partition: str,
        *,
        index: TableIndex | None = None,
        after: str | None = None,
        before: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> list[Item]:
        """Items of one partition in order of their sort keys, in the table as of now or in an index as it is.

        `after` excludes its own sort key; so does `before`. `prefix` cannot be combined with them. Reads page by page
        until `limit` items are found or none is left.
        """
        names = (PARTITION_KEY, SORT_KEY) if index is None else (index.partition_key, index.sort_key)
        condition, values = "#p = :p", {":p": {"S": partition}}
        if prefix is not None:
            condition, values = f"{condition} AND begins_with(#s, :s)", values | {":s": {"S": prefix}}
        elif after is not None and before is not None:
            # BETWEEN includes both ends: the next text after `after` is itself with the lowest character added.
            condition = f"{condition} AND #s BETWEEN :a AND :b"
            values |= {":a": {"S": after + "\x01"}, ":b": {"S": before}}
        elif after is not None:
            condition, values = f"{condition} AND #s > :a", values | {":a": {"S": after}}
        elif before is not None:
            condition, values = f"{condition} AND #s < :b", values | {":b": {"S": before}}
        arguments: dict[str, Any] = {
            "TableName": self.table,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": {"#p": names[0]} | ({"#s": names[1]} if len(values) > 1 else {}),
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not descending,
        }
        arguments |= {"ConsistentRead": True} if index is None else {"IndexName": index.name}
        items: list[Item] = []
        while True:
            if limit is not None:
                arguments["Limit"] = limit - len(items)
            answer = await self.call("Query", **arguments)
            items += [one for one in answer["Items"] if before is None or one[names[1]]["S"] < before]
            start = answer.get("LastEvaluatedKey")
            if not start or (limit is not None and len(items) >= limit):
                return items
            arguments["ExclusiveStartKey"] = start


class TableMissing(StoreUnavailable):
    """The table does not exist."""


class TableInUse(StoreUnavailable):
    """The table is being created or changed."""


def key_of(key: Key) -> Item:
    return {PARTITION_KEY: {"S": key[0]}, SORT_KEY: {"S": key[1]}}


def key_from(item: Item) -> Key:
    return item[PARTITION_KEY]["S"], item[SORT_KEY]["S"]


def _judge(operation: str, error: Any) -> Exception | None:
    """The exception for an error of AWS; None if the call may be repeated."""
    code = error.response["Error"]["Code"]
    if code == "TransactionCanceledException":
        reasons = [reason.get("Code") or "None" for reason in error.response.get("CancellationReasons", [])]
        failed = [at for at, reason in enumerate(reasons) if reason == _CONDITION]
        if failed:
            return ConditionFailed(failed)
        if set(reasons) <= _CANCELLED_FOR_NOW:
            return None
    if code == "ConditionalCheckFailedException":
        return ConditionFailed((0,))
    if code == "ResourceNotFoundException":
        return TableMissing("the DynamoDB table does not exist; run doorstep migrate, or create it with deploy/aws")
    if code == "ResourceInUseException":
        return TableInUse("the DynamoDB table is being created or changed; try again")
    if code in _REPEATABLE or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
        return None
    return StoreUnavailable(f"AWS refused {operation}: {error.response['Error'].get('Message') or code}")
