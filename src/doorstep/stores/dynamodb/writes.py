"""The writes of a transaction. Those of versioned items carry the condition that nobody has written since the read."""

from __future__ import annotations

from typing import Any

from doorstep.stores.dynamodb.client import Item, Key, key_of
from doorstep.stores.dynamodb.tables import PARTITION_KEY

Write = dict[str, Any]


def put_versioned(item: Item, version: int) -> Write:
    """Write an item if its stored version is this one; 0 means that none is stored."""
    return put_new(item) if version == 0 else {"Put": {"Item": item, **_at_version(version)}}


def put_new(item: Item) -> Write:
    return {"Put": {"Item": item, "ConditionExpression": f"attribute_not_exists({PARTITION_KEY})"}}


def put(item: Item) -> Write:
    return {"Put": {"Item": item}}


def delete_versioned(key: Key, version: int) -> Write:
    return {"Delete": {"Key": key_of(key), **_at_version(version)}}


def delete(key: Key) -> Write:
    return {"Delete": {"Key": key_of(key)}}


def _at_version(version: int) -> dict[str, Any]:
    return {
        "ConditionExpression": "#v = :v",
        "ExpressionAttributeNames": {"#v": "version"},
        "ExpressionAttributeValues": {":v": {"N": str(version)}},
    }
