"""Names: the ids of organizations and endpoints outside, and the integers that stand for them inside.

There are few of them and a pair never changes, so they are kept in memory and read again only when one is missing.
They are read on a connection of their own, which sees only what is committed: a name made by a transaction that is
then undone must not be remembered, because its integer may be given to another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple
from uuid import UUID

from doorstep.errors import NotFound

Reading = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Lends a connection on which only what is committed is seen."""


class _Known(NamedTuple):
    """All names of one table as they were read; replaced as a whole, so that threads need no lock."""

    keys: dict[UUID, int]
    uids: dict[int, UUID]
    org_keys: dict[int, int]


class Names:
    """The names in one table; `noun` is what an unknown one is called, `org` the column of its organization."""

    def __init__(self, reading: Reading, table: str, noun: str, org: str) -> None:
        self._reading = reading
        self._query = f"SELECT id, uid, {org} FROM {table}"
        self._noun = noun
        self.forget()

    def forget(self) -> None:
        """Read all of them again, when the next is asked for."""
        self._known = _Known({}, {}, {})

    def key(self, uid: UUID) -> int:
        """The integer inside; NotFound for an unknown id."""
        key = self.find(uid)
        if key is None:
            raise NotFound(f"no {self._noun} {uid}")
        return key

    def key_in(self, org_key: int, uid: UUID) -> int:
        """The same within one organization: what belongs to another is not found either."""
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


class Directory:
    """The names of a store."""

    def __init__(self, reading: Reading) -> None:
        self.orgs = Names(reading, "doorstep_orgs", "organization", org="id")
        self.endpoints = Names(reading, "doorstep_endpoints", "endpoint", org="org_id")

    def forget(self) -> None:
        """The database is another one from now on."""
        self.orgs.forget()
        self.endpoints.forget()
