"""A cache that maps the ids of organizations and endpoints to their integer keys, and the keys back to ids.

The key of an id never changes, so entries stay valid. The cache is filled on demand, one query for all entries that a
call lacks, and it is bounded: an installation may have far more endpoints than a process works with. It is read on a
separate connection, which sees only committed rows. A row of a transaction that is rolled back must not be cached,
because its key may later be assigned to another row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from doorstep.errors import NotFound
from doorstep.stores.sql.queries.transaction import parts
from doorstep.stores.tally import Owner

K = TypeVar("K")
T = TypeVar("T")
_Rows = Iterable[Any]

CACHED_MAX = 20_000
"""The maximum number of organizations and of endpoints in the cache. An endpoint takes about 500 bytes."""

ORGS = "SELECT uid, id FROM doorstep_orgs WHERE uid"
ENDPOINTS = "SELECT p.id, p.uid, o.id, o.uid FROM doorstep_endpoints p JOIN doorstep_orgs o ON o.id = p.org_id WHERE p."


class Address(NamedTuple):
    """The key and id of an endpoint, and of its organization."""

    key: int
    endpoint_id: UUID
    org_key: int
    org_id: UUID

    @property
    def owner(self) -> Owner:
        return self.org_key, self.key


Addresses = Mapping[UUID, Address]


def key_of(endpoint_id: UUID, org_key: int, addresses: Addresses) -> int:
    """The key of an organization's endpoint. Raises NotFound if there is no such endpoint, or if it belongs to another
    organization."""
    address = addresses.get(endpoint_id)
    if address is None or address.org_key != org_key:
        raise NotFound(f"no endpoint {endpoint_id}")
    return address.key


class _Cache(dict[K, T]):
    """A bounded part of the cache. Threads share it without a lock: `pick` returns what it finds as a dictionary of its
    own, so it does no harm if another thread empties the cache at the same time."""

    def pick(self, wanted: Collection[K]) -> tuple[dict[K, T], list[K]]:
        """The entries that are cached, and the keys of those that are not."""
        found = {key: value for key in wanted if (value := self.get(key)) is not None}
        return found, [key for key in dict.fromkeys(wanted) if key not in found]

    def keep(self, entries: Mapping[K, T]) -> None:
        """Add these entries, unless they are more than the cache may hold."""
        if len(self) + len(entries) > CACHED_MAX:
            self.clear()
        if len(entries) <= CACHED_MAX:
            self.update(entries)


class KeyMap:
    """The keys of a store's organizations and endpoints, as far as they are cached."""

    def __init__(self) -> None:
        self._orgs: _Cache[UUID, int] = _Cache()
        self._endpoints: _Cache[UUID, Address] = _Cache()
        self._by_key: _Cache[int, Address] = _Cache()

    def forget(self) -> None:
        """Empty the cache. Must be called when another database replaces the current one."""
        for cache in (self._orgs, self._endpoints, self._by_key):
            cache.clear()

    def _keep(self, addresses: Sequence[Address]) -> None:
        self._endpoints.keep({address.endpoint_id: address for address in addresses})
        self._by_key.keep({address.key: address for address in addresses})


def _complete(wanted: Iterable[K], found: dict[K, T]) -> dict[K, T]:
    for key in wanted:
        if key not in found:
            raise NotFound(f"no organization or endpoint {key}")
    return found


class SqliteKeys(KeyMap):
    """A KeyMap that reads the tables with a blocking function. The function runs a query and returns its rows."""

    def __init__(self, fetch: Callable[[str, Sequence[object]], _Rows]) -> None:
        super().__init__()
        self._fetch = fetch

    def org_keys(self, org_ids: Collection[UUID]) -> dict[UUID, int]:
        """The keys of these organizations. Raises NotFound if one of them does not exist."""
        found, missing = self._orgs.pick(org_ids)
        if missing:
            read = {UUID(bytes=uid): key for uid, key in self._read(ORGS, [one.bytes for one in missing])}
            self._orgs.keep(read)
            found |= read
        return _complete(org_ids, found)

    def addresses(self, endpoint_ids: Collection[UUID]) -> dict[UUID, Address]:
        """The addresses of these endpoints, except those that do not exist."""
        found, missing = self._endpoints.pick(endpoint_ids)
        if missing:
            read = self._read_endpoints("uid", [one.bytes for one in missing])
            found |= {address.endpoint_id: address for address in read}
        return found

    def by_key(self, keys: Collection[int]) -> dict[int, Address]:
        """The addresses of the endpoints with these keys. Raises NotFound if one of them does not exist."""
        found, missing = self._by_key.pick(keys)
        if missing:
            found |= {address.key: address for address in self._read_endpoints("id", missing)}
        return _complete(keys, found)

    def _read_endpoints(self, column: str, wanted: Sequence[object]) -> list[Address]:
        rows = self._read(ENDPOINTS + column, wanted)
        read = [Address(key, UUID(bytes=uid), org, UUID(bytes=org_uid)) for key, uid, org, org_uid in rows]
        self._keep(read)
        return read

    def _read(self, query: str, wanted: Sequence[object]) -> Iterator[Any]:
        for part in parts(wanted):
            yield from self._fetch(f"{query} IN ({', '.join('?' * len(part))})", part)


class PostgresKeys(KeyMap):
    """Like SqliteKeys, but with an asynchronous function."""

    def __init__(self, fetch: Callable[[str, Sequence[object]], Awaitable[_Rows]]) -> None:
        super().__init__()
        self._fetch = fetch

    async def org_keys(self, org_ids: Collection[UUID]) -> dict[UUID, int]:
        found, missing = self._orgs.pick(org_ids)
        if missing:
            read = {row[0]: row[1] for row in await self._fetch(f"{ORGS} = ANY ($1::uuid[])", missing)}
            self._orgs.keep(read)
            found |= read
        return _complete(org_ids, found)

    async def addresses(self, endpoint_ids: Collection[UUID]) -> dict[UUID, Address]:
        found, missing = self._endpoints.pick(endpoint_ids)
        if missing:
            read = await self._read_endpoints("uid = ANY ($1::uuid[])", missing)
            found |= {address.endpoint_id: address for address in read}
        return found

    async def by_key(self, keys: Collection[int]) -> dict[int, Address]:
        found, missing = self._by_key.pick(keys)
        if missing:
            read = await self._read_endpoints("id = ANY ($1::bigint[])", missing)
            found |= {address.key: address for address in read}
        return _complete(keys, found)

    async def org_key(self, org_id: UUID) -> int:
        """The key of an organization. If the id is unknown, returns 0, a key that no organization has."""
        try:
            return (await self.org_keys([org_id]))[org_id]
        except NotFound:
            return 0

    async def _read_endpoints(self, condition: str, wanted: Sequence[object]) -> list[Address]:
        read = [Address(*row) for row in await self._fetch(ENDPOINTS + condition, wanted)]
        self._keep(read)
        return read
