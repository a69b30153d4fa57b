"""Endpoints: who receives, and what waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.claim import Moved
from doorstep.model.endpoint import Endpoint, Routing
from doorstep.model.listing import Count
from doorstep.stores.limits import COUNT_MAX


class EndpointStore(Protocol):
    """Endpoints are versioned: a change is computed from one version, and written only over it."""

    async def routing(self) -> Routing:
        """All endpoints that are not deleted, in the order of their creation, with the version of this picture."""

    async def routing_version(self) -> int: ...

    async def put_endpoint(
        self,
        endpoint: Endpoint,
        expected_version: int,
        line: AuditEntry | None = None,
        living_max: int | None = None,
    ) -> bool:
        """Write an endpoint computed from `expected_version` (stored as version + 1); False if another was faster.

        Version 0 is that of an endpoint that does not exist yet, and creates it. A write bumps the routing version
        and keeps `line` in the same transaction; one that came too late changes nothing. NotFound for an unknown
        organization; Conflict for a new endpoint of an organization that has `living_max` that are not deleted.
        """

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        """One endpoint, deleted ones too; NotFound otherwise."""

    async def these_endpoints(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> list[Endpoint]:
        """Those of these endpoints that there are, deleted ones too, in any order, each once."""

    async def ailing(self, org_id: UUID, since: Instant, hours: int, limit: int) -> list[UUID]:
        """Up to `limit` endpoints that may need somebody, deleted ones left out: those that are disabled, then those whose
        circuit is open or half-open, then those of which a delivery died in one of the `hours` from `since` on, the last
        hour first; within each by their ids. Their number has no part in what it costs, only that of the deaths."""

    async def waiting_since(self, org_id: UUID, endpoint_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        """Since when each of these endpoints has been owed the oldest of its open deliveries (`owed_since`), which may lie
        ahead; those with none are left out.

        Looked for among the WAITING_EXAMINED_MAX that are due first: where more wait, there may be an older one whose
        next try is further off.
        """

    async def count_waiting(
        self, org_id: UUID, endpoint_id: UUID, created_before: Instant, limit: int = COUNT_MAX
    ) -> Count:
        """How many deliveries that wait for an endpoint are older: what `bury` would move. It looks at no more than
        `limit` that wait; beyond, the value is only a floor."""

    async def bury(
        self,
        endpoint_id: UUID,
        code: str,
        reason: str,
        now: Instant,
        limit: int,
        created_before: Instant | None = None,
    ) -> Moved:
        """Move up to `limit` waiting deliveries of an endpoint to the dead letters, without a try, oldest due first.

        They are permanent failures with this code and reason; `created_before` spares what is not older. There may
        be more even if it were fewer than `limit`, but not if it was none, unless all of them were claimed meanwhile.
        """
