"""A cache that maps the ids of organizations and endpoints to their integer keys, and the keys back to ids.

There are few organizations and endpoints, and the key of an id never changes. So the cache keeps all of them in memory,
and reads the tables again only if an entry is missing. It reads them on a separate connection, which sees only
committed rows. A row of a transaction that is rolled back must not be cached, because its key may later be assigned to
another row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from doorstep.errors import NotFound
from doorstep.stores.tally import Owner

T = TypeVar("T")
_Rows = Iterable[Any]

ORGS = "SELECT uid, id FROM doorstep_orgs"
ENDPOINTS = "SELECT p.id, p.uid, o.id, o.uid FROM doorstep_endpoints p JOIN doorstep_orgs o ON o.id = p.org_id"


class Address(NamedTuple):
    """The key and id of an endpoint, and of its organization."""

    key: int
    endpoint_id: UUID
    org_key: int
    org_id: UUID

    @property
    def owner(self) -> Owner:
        return self.org_key, self.key


class KeyMap:
    """The keys of a store's organizations and endpoints. A read replaces all entries, so no old entry remains after the
    database is restored from a backup. Each dictionary is replaced by one assignment, so threads need no lock."""

    def __init__(self) -> None:
        self.orgs: dict[UUID, int] = {}
        self.endpoints: dict[UUID, Address] = {}
        self.by_key: dict[int, Address] = {}

    def endpoint_key(self, endpoint_id: UUID, org_key: int) -> int:
        """The key of an organization's endpoint. Raises NotFound if the endpoint belongs to another organization. Call
        this inside `resolve`, which handles the KeyError for an endpoint that is not cached."""
        address = self.endpoints[endpoint_id]
        if address.org_key != org_key:
            raise NotFound(f"no endpoint {endpoint_id}")
        return address.key

    def forget(self) -> None:
        """Empty the cache. Must be called when another database replaces the current one."""
        self._replace((), ())

    def _replace(self, orgs: Iterable[tuple[UUID, int]], endpoints: Iterable[Address]) -> None:
        self.orgs = dict(orgs)
        self.by_key = {address.key: address for address in endpoints}
        self.endpoints = {address.endpoint_id: address for address in self.by_key.values()}

    def _known(self, endpoint_ids: Iterable[UUID]) -> dict[UUID, Address]:
        found = (self.endpoints.get(endpoint_id) for endpoint_id in endpoint_ids)
        return {address.endpoint_id: address for address in found if address is not None}


def _required(look_up: Callable[[], T]) -> T:
    try:
        return look_up()
    except KeyError as missing:
        raise NotFound(f"no organization or endpoint {missing.args[0]}") from None


class SqliteKeys(KeyMap):
    """A KeyMap that reads the tables with a blocking function. The function runs a query and returns its rows."""

    def __init__(self, fetch: Callable[[str], _Rows]) -> None:
        super().__init__()
        self._fetch = fetch

    def resolve(self, look_up: Callable[[], T]) -> T:
        """Call `look_up`, which reads the cache. If it raises KeyError, read the tables and call it again. Raises
        NotFound if the key or id is still missing."""
        try:
            return look_up()
        except KeyError:
            self._read()
        return _required(look_up)

    def addresses(self, endpoint_ids: Collection[UUID]) -> dict[UUID, Address]:
        """The addresses of these endpoints, except those that do not exist."""
        if not all(endpoint_id in self.endpoints for endpoint_id in endpoint_ids):
            self._read()
        return self._known(endpoint_ids)

    def _read(self) -> None:
        orgs = [(UUID(bytes=uid), key) for uid, key in self._fetch(ORGS)]
        rows = self._fetch(ENDPOINTS)
        self._replace(
            orgs, [Address(key, UUID(bytes=uid), org, UUID(bytes=org_uid)) for key, uid, org, org_uid in rows]
        )


class PostgresKeys(KeyMap):
    """Like SqliteKeys, but with an asynchronous function."""

    def __init__(self, fetch: Callable[[str], Awaitable[_Rows]]) -> None:
        super().__init__()
        self._fetch = fetch

    async def resolve(self, look_up: Callable[[], T]) -> T:
        try:
            return look_up()
        except KeyError:
            await self._read()
        return _required(look_up)

    async def addresses(self, endpoint_ids: Collection[UUID]) -> dict[UUID, Address]:
        if not all(endpoint_id in self.endpoints for endpoint_id in endpoint_ids):
            await self._read()
        return self._known(endpoint_ids)

    async def org_key(self, org_id: UUID) -> int:
        """The key of an organization. If the id is unknown, returns 0, a key that no organization has."""
        try:
            return await self.resolve(lambda: self.orgs[org_id])
        except NotFound:
            return 0

    async def _read(self) -> None:
        orgs = [(row[0], row[1]) for row in await self._fetch(ORGS)]
        self._replace(orgs, [Address(*row) for row in await self._fetch(ENDPOINTS)])
