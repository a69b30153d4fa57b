"""What all verbs of the DynamoDB store work on."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from uuid import UUID

from doorstep.clock import Instant
from doorstep.errors import NotFound, StoreUnavailable
from doorstep.stores.dynamodb.client import Aws
from doorstep.stores.dynamodb.keys import endpoint_key, org_key
from doorstep.stores.dynamodb.queue import Queue
from doorstep.stores.dynamodb.rows import DeliveryRow
from doorstep.stores.dynamodb.unit import EventUnits
from doorstep.stores.store import Topic


class Context:
    _opened: Aws | None = None
    _queue: Queue | None = None

    def __init__(self) -> None:
        self._wakes: defaultdict[Topic, list[Callable[[], None]]] = defaultdict(list)
        self._known_orgs: set[UUID] = set()
        """Organizations are never removed."""
        self._writing = asyncio.Lock()
        """Writes of documents number the changes of routing, so those of one process take turns instead of racing."""
        self._owners: dict[UUID, UUID] = {}
        """The organizations of endpoints, which never change."""

    @property
    def _aws(self) -> Aws:
        if self._opened is None:
            raise StoreUnavailable("the store is not open")
        return self._opened

    @property
    def _units(self) -> EventUnits:
        return EventUnits(self._aws, self._announce)

    def _announce(self, rows: Sequence[DeliveryRow], now: Instant) -> None:
        """Tell other workers of deliveries that wait."""
        if self._queue is not None:
            self._queue.announce(rows, now)

    def _wake(self, topic: Topic) -> None:
        for wake in self._wakes[topic]:
            wake()

    async def _check_org(self, org_id: UUID) -> None:
        """Raise NotFound unless the organization exists."""
        if org_id not in self._known_orgs:
            if await self._aws.get(org_key(org_id)) is None:
                raise NotFound(f"no organization {org_id}")
            self._known_orgs.add(org_id)

    async def _check_endpoints(self, owned: Collection[tuple[UUID, UUID]]) -> None:
        """Raise NotFound unless each endpoint exists and belongs to its organization."""
        await self._learn_owners(endpoint_id for endpoint_id, _ in owned)
        for endpoint_id, org_id in owned:
            if self._owners.get(endpoint_id) != org_id:
                raise NotFound(f"no endpoint {endpoint_id}")

    async def _learn_owners(self, endpoint_ids: Iterable[UUID]) -> None:
        """Read the organizations of endpoints that are not known yet."""
        unknown = [endpoint_key(one) for one in endpoint_ids if one not in self._owners]
        for item in (await self._aws.get_many(unknown)).values() if unknown else ():
            self._owners[UUID(item["sk"]["S"])] = UUID(item["org_id"]["S"])
