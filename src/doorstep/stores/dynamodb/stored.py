"""Documents as items: the JSON of a record, with its version as an attribute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from doorstep.model.action import AuditEntry
from doorstep.model.claim import WorkerEntry
from doorstep.model.endpoint import CircuitChange, Endpoint
from doorstep.model.org import ApiKey, KeyCheck, Org
from doorstep.model.record import uuid7
from doorstep.stores.dynamodb.client import Item, Key, key_of
from doorstep.stores.dynamodb.keys import audit_partition
from doorstep.stores.dynamodb.rows import instant

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def audit_item(entry: AuditEntry) -> Item:
    """Entries of one instant are in the order in which they were written."""
    written = uuid7(time.time_ns() // 1_000)
    return document_item((audit_partition(entry.org_id), f"{instant(entry.at)}#{written}"), entry)


def document_item(key: Key, document: object) -> Item:
    """A document as an item."""
    return {**key_of(key), "document": {"S": _encode(document).decode()}, "version": {"N": str(_version(document))}}


def _version(document: object) -> int:
    """The version of a record that has one. (The `version` of a worker is that of its program.)"""
    version = getattr(document, "version", 0)
    return version if isinstance(version, int) else 0


def version_of(item: Item | None) -> int:
    return 0 if item is None else int(item["version"]["N"])


def _decoder(kind: type[T]) -> Callable[[Item], T]:
    decode = msgspec.json.Decoder(kind).decode
    return lambda item: decode(item["document"]["S"])


endpoint_from = _decoder(Endpoint)
org_from = _decoder(Org)
key_from_item = _decoder(ApiKey)
key_check_from = _decoder(KeyCheck)
worker_from = _decoder(WorkerEntry)
change_from = _decoder(CircuitChange)
audit_from = _decoder(AuditEntry)
