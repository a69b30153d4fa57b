"""Bulk operations: each step acts, remembers what it acted upon, and writes how far it has come, all at once."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from doorstep.errors import NotFound
from doorstep.model.action import Action, AuditEntry
from doorstep.model.bulk import UNDER_WAY_MAX, Bulk, BulkKind, BulkStep, UnderWay, retried_well
from doorstep.model.claim import Moved
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.listing import Page
from doorstep.stores import cursor as cursors
from tests.reference.operators import OperatorVerbs
from tests.reference.tables import BulkItem, BulkRow


class BulkVerbs(OperatorVerbs):
    async def add_bulk(self, bulk: Bulk, line: AuditEntry | None = None) -> bool:
        self._tables.check_org(bulk.org_id)
        if bulk.bulk_id in self._tables.bulks:
            return False
        self._tables.add_bulk(bulk)
        if line is not None:
            self._tables.audit.append(line)
        return True

    async def bulk(self, org_id: UUID, bulk_id: UUID) -> Bulk:
        return self._bulk_row(org_id, bulk_id).bulk

    async def list_bulk(self, org_id: UUID, cursor: str | None, limit: int) -> Page[Bulk]:
        (before,) = cursors.read(cursor, cursors.KEY_MAX) or (cursors.KEY_MAX,)
        newest_first = reversed(self._tables.bulks.values())
        found = [row for row in newest_first if row.bulk.org_id == org_id and row.key < before][: limit + 1]
        more = cursors.write(found[limit - 1].key) if len(found) > limit else None
        return Page(tuple(row.bulk for row in found[:limit]), more)

    async def live_bulks(self) -> list[Bulk]:
        return [row.bulk for row in self._tables.bulks.values() if row.bulk.live]

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, act: Action | None = None, line: AuditEntry | None = None
    ) -> BulkStep | None:
        row = self._bulk_row(bulk.org_id, bulk.bulk_id)
        if row.bulk.version != expected_version:
            return None
        succeeded, failed = self._collect(row)
        taken, refused, moved = 0, 0, Moved()
        if act is not None:
            result, moved = await self.act(act)
            taken, refused = len(result.done), len(result.refused)
            if bulk.kind is BulkKind.RETRY:
                taken = self._remember(row, result.done)
        row.bulk = bulk.after(
            taken=taken, refused=refused, succeeded=succeeded, failed=failed, version=expected_version + 1
        )
        if line is not None:
            self._tables.audit.append(line)
        return BulkStep(row.bulk, moved)

    async def bulk_has_results(self, org_id: UUID, bulk_id: UUID) -> bool:
        items = self._bulk_row(org_id, bulk_id).items.items()
        return any(one.succeeded is None and self._result(uid, one) is not None for uid, one in items)

    async def bulk_under_way(self, org_id: UUID, bulk_id: UUID) -> list[UnderWay]:
        unknown = [(uid, one) for uid, one in self._bulk_row(org_id, bulk_id).items.items() if one.succeeded is None]
        return [
            UnderWay(delivery_id, found.delivery.endpoint_id, found.delivery.state is DeliveryState.PENDING)
            for delivery_id, item in unknown[:UNDER_WAY_MAX]
            if (found := self._tables.deliveries.get(delivery_id)) and self._result(delivery_id, item) is None
        ]

    async def bulk_failures(self, org_id: UUID, bulk_id: UUID, cursor: str | None, limit: int) -> Page[Delivery]:
        (after,) = cursors.read(cursor, cursors.KEY_MAX) or (0,)
        items = self._bulk_row(org_id, bulk_id).items.items()
        failed = (self._tables.deliveries.get(delivery_id) for delivery_id, item in items if item.succeeded is False)
        rows = sorted((row for row in failed if row and row.key > after), key=lambda row: row.key)
        more = cursors.write(rows[limit - 1].key) if len(rows) > limit else None
        return Page(tuple(row.delivery for row in rows[:limit]), more)

    def _bulk_row(self, org_id: UUID, bulk_id: UUID) -> BulkRow:
        row = self._tables.bulks.get(bulk_id)
        if row is None or row.bulk.org_id != org_id:
            raise NotFound(f"no bulk operation {bulk_id}")
        return row

    def _remember(self, row: BulkRow, done: tuple[UUID, ...]) -> int:
        """Keep what was retried; returns how many had not been before."""
        new = [delivery_id for delivery_id in done if delivery_id not in row.items]
        row.items |= {one: BulkItem(self._tables.deliveries[one].delivery.attempt) for one in new}
        return len(new)

    def _collect(self, row: BulkRow) -> tuple[int, int]:
        """Mark the items whose retry has ended; returns how many succeeded and how many failed."""
        unknown = ((uid, item) for uid, item in row.items.items() if item.succeeded is None)
        ended = {True: 0, False: 0}
        for delivery_id, item in islice(unknown, UNDER_WAY_MAX):
            item.succeeded = self._result(delivery_id, item)
            if item.succeeded is not None:
                ended[item.succeeded] += 1
        return ended[True], ended[False]

    def _result(self, delivery_id: UUID, item: BulkItem) -> bool | None:
        found = self._tables.deliveries.get(delivery_id)
        state, attempt = (found.delivery.state, found.delivery.attempt) if found else (None, 0)
        return retried_well(state, attempt, item.attempt)
