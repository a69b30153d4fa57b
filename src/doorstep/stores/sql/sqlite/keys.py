"""A cache that maps the ids of organizations and endpoints to their integer keys, and keys to ids.

There are few of them, and the key of an id never changes. So all are kept in memory, and they are read again only if
one is missing. They are read on a separate connection, which sees only committed rows. A row of a transaction that is
rolled back must not be cached, because its key may later be assigned to another row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple
from uuid import UUID

from doorstep.errors import NotFound

Reading = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Provides a connection that sees only committed rows."""


class _Known(NamedTuple):
    """All keys and ids of one table. It is always replaced as a whole, so that threads need no lock."""

    keys: dict[UUID, int]
    uids: dict[int, UUID]
    org_keys: dict[int, int]


class KeyTable:
    """Keys and ids of one table. Errors call a row `noun`. The column `org` contains the key of its organization."""

    def __init__(self, reading: Reading, table: str, noun: str, org: str) -> None:
        self._reading = reading
        self._query = f"SELECT id, uid, {org} FROM {table}"
        self._noun = noun
        self.forget()

    def forget(self) -> None:
        """Empty the cache, so that the next look-up reads all rows again."""
        self._known = _Known({}, {}, {})

    def key(self, uid: UUID) -> int:
        """The integer key of an id. Raises NotFound if the id is unknown."""
        key = self.find(uid)
        if key is None:
            raise NotFound(f"no {self._noun} {uid}")
        return key

    def key_in(self, org_key: int, uid: UUID) -> int:
        """The same, but also raises NotFound if the row belongs to another organization."""
        key = self.key(uid)
        if self._known.org_keys[key] != org_key:
            raise NotFound(f"no {self._noun} {uid}")
        return key

    def find(self, uid: UUID) -> int | None:
        key = self._known.keys.get(uid)
        return self._read().keys.get(uid) if key is None else key

    def uid(self, key: int) -> UUID:
        uid = self._known.uids.get(key)
        return self._read().uids[key] if uid is None else uid

    def _read(self) -> _Known:
        with self._reading() as connection:
            rows = [(key, UUID(bytes=uid), org_key) for key, uid, org_key in connection.execute(self._query)]
        self._known = _Known(
            {uid: key for key, uid, _ in rows},
            {key: uid for key, uid, _ in rows},
            {key: org_key for key, _, org_key in rows},
        )
        return self._known


class KeyMap:
    """The keys of a store's organizations and endpoints."""

    def __init__(self, reading: Reading) -> None:
        self.orgs = KeyTable(reading, "doorstep_orgs", "organization", org="id")
        self.endpoints = KeyTable(reading, "doorstep_endpoints", "endpoint", org="org_id")

    def forget(self) -> None:
        """Empty the cache. Must be called when another database replaces the current one."""
        self.orgs.forget()
        self.endpoints.forget()
