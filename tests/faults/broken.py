"""Doorstep with one deliberate fault, to prove that the harness would detect it.

python -m tests.faults.broken acknowledge-before-commit serve --port 8080
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from doorstep.cli.main import run
from doorstep.clock import Instant, seconds
from doorstep.engine.accept import Accepter
from doorstep.engine.intake import Offer
from doorstep.model.action import Action, AuditEntry
from doorstep.model.alert import AlertWrite
from doorstep.model.bulk import Bulk
from doorstep.model.claim import Settled, Settlement
from doorstep.model.event import EventView, Receipt, Submission, Verdict
from doorstep.operations.bulk_steps import BulkStepper
from doorstep.policy import circuit
from doorstep.services import worker
from doorstep.stores.sql.sqlite import accept, batches
from doorstep.stores.sql.sqlite.store import SqliteStore
from doorstep.stores.store import Store
from doorstep.stores.tally import Tally

_COMMIT_SECONDS = 0.3
ACT_SECONDS = 2.0
"""The pause between what the broken bulk operation writes and what it does: long enough to be killed in it."""


def acknowledge_before_commit() -> None:
    """Answers with receipts immediately, and stores the events a moment later."""
    store_all = Accepter._store_all

    async def hasty(
        accepter: Accepter, submissions: list[Submission], now: Instant, offer: Offer | None
    ) -> list[Receipt]:
        def store_later() -> None:
            asyncio.ensure_future(store_all(accepter, submissions, now, offer))

        asyncio.get_running_loop().call_later(_COMMIT_SECONDS, store_later)
        return [Receipt(Verdict.ACCEPTED, s.event.event_id, now, len(s.deliveries)) for s in submissions]

    _put(Accepter, "_store_all", hasty)


def settle_without_token() -> None:
    """Accepts every reported result, even from a worker that no longer holds the delivery.

    The results are written after a short pause, so that a worker has unreported results whenever it is stopped. Results
    of attempts that timed out during the stop would not help: the database refuses a retry of an attempt that is over.
    """
    settle = SqliteStore.settle

    async def gullible(store: SqliteStore, settlements: Sequence[Settlement], now: Instant) -> Settled:
        await asyncio.sleep(_COMMIT_SECONDS)
        tokens = _newest_tokens()
        believed = [
            msgspec.structs.replace(s, claim=s.claim._replace(token=tokens[s.claim.delivery_id.bytes]))
            for s in settlements
        ]
        return await settle(store, believed, now)

    _put(SqliteStore, "settle", gullible)


def _newest_tokens() -> dict[bytes, int]:
    path = os.environ["DOORSTEP_DATABASE_URL"].removeprefix("sqlite:///")
    connection = sqlite3.connect(path)
    try:
        return dict(connection.execute("SELECT uid, token FROM doorstep_deliveries"))
    finally:
        connection.close()


def count_attempts_at_settle() -> None:
    """Ignores attempts whose worker never reported: the delivery is due again, and no attempt was used."""

    async def forgiving(store: Store, directory: object, settler: object, now: Instant, random: object) -> int:
        claims = await store.expired(now, 500)
        await store.release(claims, now)
        return len(claims)

    _put(worker, "reclaim", forgiving)


def progress_apart_from_act() -> None:
    """A bulk operation writes its progress first, and acts on the deliveries that it has passed a moment later."""
    write = BulkStepper._write

    async def careless(
        stepper: BulkStepper, bulk: Bulk, read: Bulk, action: Action | None = None, entry: AuditEntry | None = None
    ) -> Bulk | None:
        written = await write(stepper, bulk, read, entry=entry)
        if written is None or action is None:
            return written
        await asyncio.sleep(ACT_SECONDS)
        return await write(stepper, written, written, action)

    _put(BulkStepper, "_write", careless)


def count_apart() -> None:
    """Counts in a separate transaction, a moment after the change that is counted."""
    uncounted: list[tuple[Tally, Instant]] = []
    add_counts, settle = batches.add_counts, SqliteStore.settle

    def note(connection: sqlite3.Connection, tally: Tally, at: Instant) -> None:
        uncounted.append((tally, at))

    async def settle_then_count(store: SqliteStore, settlements: Sequence[Settlement], now: Instant) -> Settled:
        settled = await settle(store, settlements, now)
        await asyncio.sleep(_COMMIT_SECONDS)
        counts, uncounted[:] = uncounted[:], []
        await store._opened_writer().run(lambda connection: [add_counts(connection, *one) for one in counts])
        return settled

    _put(batches, "add_counts", note)
    _put(SqliteStore, "settle", settle_then_count)


def tell_apart() -> None:
    """Removes incidents first, and writes the resulting messages a moment later."""
    write_alerts = SqliteStore.write_alerts

    async def careless(store: SqliteStore, write: AlertWrite) -> bool:
        removal = AlertWrite(org_id=write.org_id, incident_keys=write.incident_keys)
        if write.incident_keys and not await write_alerts(store, removal):
            return False
        await asyncio.sleep(ACT_SECONDS)
        return await write_alerts(store, msgspec.structs.replace(write, incident_keys=()))

    _put(SqliteStore, "write_alerts", careless)


def tell_before() -> None:
    """Writes the messages about incidents first, and removes the incidents a moment later."""
    write_alerts = SqliteStore.write_alerts

    async def careless(store: SqliteStore, write: AlertWrite) -> bool:
        if not await write_alerts(store, msgspec.structs.replace(write, incident_keys=())):
            return False
        await asyncio.sleep(ACT_SECONDS)
        return await write_alerts(store, AlertWrite(org_id=write.org_id, incident_keys=write.incident_keys))

    _put(SqliteStore, "write_alerts", careless)


def forget_the_order() -> None:
    """No delivery waits for those that were accepted before it."""
    _put(accept, "BLOCK", "SELECT ?")


def lease_to_everybody() -> None:
    """A lease of an inbox event ends at once, although its holder is promised more time."""
    lease = SqliteStore.lease_inbox

    async def brief(
        store: SqliteStore,
        org_id: UUID,
        event_types: Sequence[str],
        limit: int,
        holder: str,
        now: Instant,
        until: Instant,
        user_id: str | None = None,
    ) -> list[EventView]:
        views = await lease(store, org_id, event_types, limit, holder, now, now, user_id)
        return [msgspec.structs.replace(one, visible_at=until) for one in views]

    _put(SqliteStore, "lease_inbox", brief)


def commit_without_sync() -> None:
    """Runs SQLite with synchronous=NORMAL throughout: a commit is in the log file, but not synced to the disk."""

    class Careless(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            return super().execute(sql.replace("synchronous = FULL", "synchronous = NORMAL"), *parameters)

    _put(sqlite3, "connect", partial(sqlite3.connect, factory=Careless))


def pause_for_minutes() -> None:
    """Every pause before a probe is the longest one, however short the outage."""
    _put(circuit, "probe_pause", lambda outage, rules: seconds(rules.open_seconds))


def _put(owner: object, name: str, replacement: object) -> None:
    setattr(owner, name, replacement)


BREAKS: dict[str, Callable[[], None]] = {
    "acknowledge-before-commit": acknowledge_before_commit,
    "settle-without-token": settle_without_token,
    "count-attempts-at-settle": count_attempts_at_settle,
    "progress-apart-from-act": progress_apart_from_act,
    "count-apart": count_apart,
    "tell-apart": tell_apart,
    "tell-before": tell_before,
    "forget-the-order": forget_the_order,
    "lease-to-everybody": lease_to_everybody,
    "commit-without-sync": commit_without_sync,
    "pause-for-minutes": pause_for_minutes,
}


def program(break_name: str) -> list[str]:
    """The command that replaces `doorstep`."""
    assert break_name in BREAKS
    return [sys.executable, "-m", "tests.faults.broken", break_name]


if __name__ == "__main__":
    BREAKS[sys.argv[1]]()
    sys.argv = ["doorstep", *sys.argv[2:]]
    run()
