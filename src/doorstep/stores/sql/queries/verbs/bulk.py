"""Bulk operations."""

from __future__ import annotations

from uuid import UUID

from doorstep.model.action import Action, AuditEntry
from doorstep.model.bulk import Bulk, BulkStep, UnderWay
from doorstep.model.delivery import Delivery
from doorstep.model.listing import Page
from doorstep.stores.sql.queries import bulk as bulk_scripts
from doorstep.stores.sql.queries.verbs.scripted import Scripted


class BulkVerbs(Scripted):
    async def add_bulk(self, bulk: Bulk, line: AuditEntry | None = None) -> bool:
        return await self._write(None, bulk_scripts.add_bulk, bulk, line)

    async def bulk(self, org_id: UUID, bulk_id: UUID) -> Bulk:
        return await self._read(org_id, bulk_scripts.bulk, org_id, bulk_id)

    async def list_bulk(self, org_id: UUID, cursor: str | None, limit: int) -> Page[Bulk]:
        return await self._read(org_id, bulk_scripts.list_bulk, org_id, cursor, limit)

    async def live_bulks(self) -> list[Bulk]:
        return await self._read(None, bulk_scripts.live_bulks)

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, act: Action | None = None, line: AuditEntry | None = None
    ) -> BulkStep | None:
        return await self._write(bulk.org_id, bulk_scripts.step_bulk, bulk, expected_version, act, line)

    async def bulk_has_results(self, org_id: UUID, bulk_id: UUID) -> bool:
        return await self._read(org_id, bulk_scripts.bulk_has_results, org_id, bulk_id)

    async def bulk_under_way(self, org_id: UUID, bulk_id: UUID) -> list[UnderWay]:
        return await self._read(org_id, bulk_scripts.bulk_under_way, org_id, bulk_id)

    async def bulk_failures(self, org_id: UUID, bulk_id: UUID, cursor: str | None, limit: int) -> Page[Delivery]:
        return await self._read(org_id, bulk_scripts.bulk_failures, org_id, bulk_id, cursor, limit)
