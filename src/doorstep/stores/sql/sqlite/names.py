"""Names: the ids of organizations and endpoints outside, and the integers that stand for them inside.

There are few of them and a pair never changes, so both are kept in memory and read again only when one is missing.
"""

from __future__ import annotations

import sqlite3
from uuid import UUID

from doorstep.errors import NotFound


class Names:
    """The names in one table; `noun` is what an unknown one is called."""

    def __init__(self, table: str, noun: str) -> None:
        self._query = f"SELECT id, uid FROM {table}"
        self._noun = noun
        self._keys: dict[UUID, int] = {}
        self._uids: dict[int, UUID] = {}

    def key(self, connection: sqlite3.Connection, uid: UUID) -> int:
        """The integer inside; NotFound for an unknown id."""
        key = self.find(connection, uid)
        if key is None:
            raise NotFound(f"no {self._noun} {uid}")
        return key

    def find(self, connection: sqlite3.Connection, uid: UUID) -> int | None:
        if uid not in self._keys:
            self._read(connection)
        return self._keys.get(uid)

    def uid(self, connection: sqlite3.Connection, key: int) -> UUID:
        if key not in self._uids:
            self._read(connection)
        return self._uids[key]

    def forget(self) -> None:
        """After a failed commit: what was read inside it may never have been."""
        self._keys, self._uids = {}, {}

    def _read(self, connection: sqlite3.Connection) -> None:
        pairs = [(key, UUID(bytes=uid)) for key, uid in connection.execute(self._query)]
        self._uids = dict(pairs)
        self._keys = {uid: key for key, uid in pairs}


class Directory:
    """The names of a store."""

    def __init__(self) -> None:
        self.orgs = Names("doorstep_orgs", "organization")
        self.endpoints = Names("doorstep_endpoints", "endpoint")

    def forget(self) -> None:
        self.orgs.forget()
        self.endpoints.forget()
