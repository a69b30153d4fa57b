"""The table and its indexes: their names, keys and what each index contains. Imports nothing of AWS.

The Terraform module (deploy/aws/dynamodb.tf) declares the same, and a test compares the two. All keys are strings, so
numbers in sort keys are padded. Every index contains keys only: an index is late, so the store reads the items it finds
from the table and drops those that no longer match.
"""

from __future__ import annotations

import re

from doorstep.model.record import Record

PARTITION_KEY = "pk"
SORT_KEY = "sk"
TTL_ATTRIBUTE = "expires_at"
"""Seconds since the epoch. Only idempotency keys have it; DynamoDB removes them some time later, so the store also
compares the time itself."""
BILLING_MODE = "PAY_PER_REQUEST"
PROJECTION = "KEYS_ONLY"

TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")

SHARDS = 8
"""How many partitions an index spreads busy keys over. A partition takes 1,000 writes a second, and a delivery that is
claimed from the table writes about four entries of `DueIndex`, so 8 partitions carry some 2,000 of them a second for one
endpoint. A page of a list asks each partition."""


class TableIndex(Record, frozen=True):
    """A global secondary index. It is sparse: an item without its keys is not in it."""

    name: str
    partition_key: str
    sort_key: str


STATUS_INDEX = TableIndex("StatusIndex", "status_owner", "status_at")
"""Inbox events and failed events, by owner, oldest first."""
DUE_INDEX = TableIndex("DueIndex", "due_shard", "due_order")
"""Deliveries that wait, by shard, then endpoint, then due time, so that the backlog of a stopped endpoint costs one seek;
leases, by their end; and events whose deliveries are not all stored yet."""
LIST_INDEX = TableIndex("ListIndex", "list_key", "list_order")
"""All events and all deliveries of an organization, by id."""
WORK_INDEX = TableIndex("WorkIndex", "work_key", "work_order")
"""The retry queue by due time, and dead letters and other settled deliveries by the time at which they were settled."""

INDEXES = (STATUS_INDEX, DUE_INDEX, LIST_INDEX, WORK_INDEX)

KEY_ATTRIBUTES: dict[str, str] = {PARTITION_KEY: "S", SORT_KEY: "S"} | {
    name: "S" for index in INDEXES for name in (index.partition_key, index.sort_key)
}
"""The type of every attribute that is a key of the table or of an index."""


def table_definition(table: str) -> dict[str, object]:
    """The arguments of CreateTable."""
    return {
        "TableName": table,
        "BillingMode": BILLING_MODE,
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in KEY_ATTRIBUTES.items()
        ],
        "KeySchema": key_schema(PARTITION_KEY, SORT_KEY),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index.name,
                "KeySchema": key_schema(index.partition_key, index.sort_key),
                "Projection": {"ProjectionType": PROJECTION},
            }
            for index in INDEXES
        ],
    }


def key_schema(partition_key: str, sort_key: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": partition_key, "KeyType": "HASH"},
        {"AttributeName": sort_key, "KeyType": "RANGE"},
    ]
