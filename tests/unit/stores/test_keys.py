"""The cache of integer keys: it reads only what a call lacks, and stays within its bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from doorstep.errors import NotFound
from doorstep.stores.sql import keys
from doorstep.stores.sql.keys import Address, SqliteKeys, key_of
from tests.support.builders import new_id

ORG = new_id()


class Table:
    """The endpoints of one organization, and the rows that were read of them."""

    def __init__(self, count: int) -> None:
        self.uids = [new_id() for _ in range(count)]
        self.rows_read: list[int] = []

    def fetch(self, query: str, values: Sequence[Any]) -> list[tuple[object, ...]]:
        if query.startswith(keys.ORGS):
            return [(ORG.bytes, 5)] if ORG.bytes in values else []
        numbers = self._numbers(values)
        self.rows_read.append(len(numbers))
        return [(number, self.uids[number].bytes, 5, ORG.bytes) for number in numbers]

    def _numbers(self, values: Sequence[Any]) -> list[int]:
        if isinstance(values[0], bytes):
            return [self.uids.index(UUID(bytes=one)) for one in values if UUID(bytes=one) in self.uids]
        return [one for one in values if one < len(self.uids)]


def test_only_the_endpoints_that_are_asked_for_are_read_and_each_only_once() -> None:
    table = Table(1_000)
    key_map = SqliteKeys(table.fetch)
    wanted = table.uids[10:13]
    assert key_map.addresses(wanted) == {uid: Address(n, uid, 5, ORG) for n, uid in enumerate(wanted, 10)}
    assert set(key_map.by_key([11, 12])) == {11, 12}
    assert set(key_map.addresses(table.uids[12:15])) == set(table.uids[12:15])
    assert table.rows_read == [3, 2]


def test_what_does_not_exist_is_left_out_of_addresses_and_an_error_elsewhere() -> None:
    key_map = SqliteKeys(Table(2).fetch)
    assert key_map.addresses([new_id()]) == {}
    with pytest.raises(NotFound):
        key_map.by_key([0, 2])
    with pytest.raises(NotFound):
        key_map.org_keys([ORG, new_id()])
    assert key_map.org_keys([ORG]) == {ORG: 5}


def test_an_endpoint_of_another_organization_is_not_found() -> None:
    table = Table(1)
    addresses = SqliteKeys(table.fetch).addresses(table.uids)
    assert key_of(table.uids[0], 5, addresses) == 0
    for endpoint_id, org_key in ((table.uids[0], 6), (new_id(), 5)):
        with pytest.raises(NotFound):
            key_of(endpoint_id, org_key, addresses)


def test_the_cache_stays_within_its_bound_and_a_call_may_need_more_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "CACHED_MAX", 20)
    table = Table(100)
    key_map = SqliteKeys(table.fetch)
    for number in range(100):
        key_map.addresses([table.uids[number]])
        assert len(key_map._endpoints) <= 20 and len(key_map._by_key) <= 20
    assert len(key_map.addresses(table.uids)) == 100
    assert len(key_map._endpoints) <= 20
