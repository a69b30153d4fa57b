"""The register of workers: who is there, as documents."""

from __future__ import annotations

import msgspec
from sqlalchemy import bindparam, delete, select, text

from doorstep.clock import Instant
from doorstep.model.worker import WorkerEntry
from doorstep.stores.sql.queries.transaction import Transaction, execute
from doorstep.stores.sql.schema import workers

_decode = msgspec.json.Decoder(WorkerEntry)

_W = workers.c
_BEAT = text(
    "INSERT INTO doorstep_workers (name, seen_at, document) VALUES (:name, :seen_at, :document) "
    "ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, document = excluded.document"
)
_SEEN = (
    select(_W.document)
    .where(_W.seen_at > bindparam("seen_after"))
    .order_by(_W.seen_at.desc(), _W.name)
    .limit(bindparam("most"))
)
_FORGET = delete(workers).where(_W.name == bindparam("worker"))
_OLD = select(_W.name).where(_W.seen_at < bindparam("seen_before")).order_by(_W.seen_at).limit(bindparam("most"))
_FORGET_ALL = delete(workers).where(_W.name.in_(bindparam("names", expanding=True))).returning(_W.name)


def beat(worker: WorkerEntry) -> Transaction[None]:
    document = msgspec.json.encode(worker).decode()
    yield execute(_BEAT, name=worker.name, seen_at=worker.seen_at, document=document)


def seen(seen_after: Instant, limit: int) -> Transaction[list[WorkerEntry]]:
    return [_decode.decode(row[0]) for row in (yield execute(_SEEN, seen_after=seen_after, most=limit))]


def forget(name: str) -> Transaction[None]:
    yield execute(_FORGET, worker=name)


def forget_old(seen_before: Instant, limit: int) -> Transaction[int]:
    names = [row[0] for row in (yield execute(_OLD, seen_before=seen_before, most=limit))]
    return len((yield execute(_FORGET_ALL, names=names))) if names else 0
