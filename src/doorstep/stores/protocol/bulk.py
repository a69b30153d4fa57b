"""Bulk operations: one act on many deliveries, step by step."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from doorstep.model.action import Action, AuditEntry
from doorstep.model.bulk import Bulk, BulkStep, UnderWay
from doorstep.model.delivery import Delivery
from doorstep.model.listing import Page


class BulkStore(Protocol):
    """A version decides who takes a step, so each is taken once."""

    async def add_bulk(self, bulk: Bulk, line: AuditEntry | None = None) -> bool:
        """Keep a new operation, and `line` in the same transaction. False if there is one with its id, and then nothing
        was done."""

    async def bulk(self, org_id: UUID, bulk_id: UUID) -> Bulk: ...

    async def list_bulk(self, org_id: UUID, cursor: str | None, limit: int) -> Page[Bulk]:
        """The newest first."""

    async def live_bulks(self) -> list[Bulk]:
        """Those that go on or wait for results, of every organization, oldest first."""

    async def step_bulk(
        self, bulk: Bulk, expected_version: int, act: Action | None = None, line: AuditEntry | None = None
    ) -> BulkStep | None:
        """Write a bulk operation computed from `expected_version` together with its next act and `line`; None if
        another was faster, and then nothing was done.

        What the act did is added to `taken` and `refused`. What a RETRY retried is remembered, and each step looks at
        what became of that (`retried_well`), and adds to `succeeded` and `failed`. Each delivery counts once, also
        in `taken`, even if it is retried again.
        """

    async def bulk_has_results(self, org_id: UUID, bulk_id: UUID) -> bool:
        """Whether anything that a bulk retry has taken ended since its last step: a step would count it."""

    async def bulk_under_way(self, org_id: UUID, bulk_id: UUID) -> list[UnderWay]:
        """What a bulk retry has taken and what is without result now, up to UNDER_WAY_MAX of it."""

    async def bulk_failures(self, org_id: UUID, bulk_id: UUID, cursor: str | None, limit: int) -> Page[Delivery]:
        """What a bulk retry retried in vain, in the order of creation."""
