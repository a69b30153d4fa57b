"""A cache of the integer keys of organizations and endpoints. There are few, and a key never changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from doorstep.errors import NotFound
from doorstep.stores.sql.postgres.connections import Connections

T = TypeVar("T")


class Address(NamedTuple):
    """The key and id of an endpoint, and of its organization."""

    key: int
    endpoint_id: UUID
    org_key: int
    org_id: UUID


class KeyMap:
    """Maps ids to keys, and keys to ids. `resolve` reads the tables again if a key or id is missing."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.orgs: dict[UUID, int] = {}
        self.endpoints: dict[UUID, Address] = {}
        self.by_key: dict[int, Address] = {}

    async def resolve(self, look_up: Callable[[], T]) -> T:
        """Call `look_up`, which reads these dictionaries. If it raises KeyError, read the tables again and call it
        again. Raises NotFound if the key or id is still missing."""
        try:
            return look_up()
        except KeyError:
            await self._refill()
        try:
            return look_up()
        except KeyError as missing:
            raise NotFound(f"no organization or endpoint {missing.args[0]}") from None

    async def addresses(self, endpoint_ids: Sequence[UUID]) -> list[Address | None]:
        """The addresses of these endpoints, with None for each unknown endpoint."""
        if any(endpoint_id not in self.endpoints for endpoint_id in endpoint_ids):
            await self._refill()
        return [self.endpoints.get(endpoint_id) for endpoint_id in endpoint_ids]

    async def org_key(self, org_id: UUID) -> int:
        """The key of an organization. Returns 0, which is no organization's key, if the id is unknown."""
        try:
            return await self.resolve(lambda: self.orgs[org_id])
        except NotFound:
            return 0

    async def _refill(self) -> None:
        async with self._connections.connection() as connection:
            orgs = await connection.fetch("SELECT uid, id FROM doorstep_orgs")
            rows = await connection.fetch(
                "SELECT p.id, p.uid, o.id, o.uid FROM doorstep_endpoints p JOIN doorstep_orgs o ON o.id = p.org_id"
            )
        self.orgs = {row[0]: row[1] for row in orgs}
        self.by_key = {row[0]: Address(*row) for row in rows}
        self.endpoints = {address.endpoint_id: address for address in self.by_key.values()}
