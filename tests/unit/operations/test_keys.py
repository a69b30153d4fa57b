"""The API key cache of a process: it remembers valid keys and keys known to be invalid."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from doorstep.errors import Overloaded
from doorstep.model.listing import KeysByDigest
from doorstep.model.org import ApiKey, Role
from doorstep.operations import keys
from doorstep.operations import keys as keyring
from doorstep.operations.keys import CACHE_SECONDS, ApiKeys
from tests.support.shortcuts import put
from tests.unit.engine.scene import Bench


class Process:
    """A process with its own key cache on a shared store; the store calls are counted."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.keyring = ApiKeys(bench.store, bench.clock, bench.directory)

    @property
    def look_ups(self) -> int:
        return self._bench.failing.calls.count("find KeysByDigest")

    async def lets_in(self, key: str) -> bool:
        return await self.keyring.authenticate(key) is not None

    async def make(self, org_id: UUID) -> str:
        _, key = await self.keyring.create(org_id, "a", Role.ADMIN, "ops")
        return key


async def opened() -> tuple[Bench, Process]:
    bench = Bench()
    await bench.prepare()
    return bench, Process(bench)


async def test_an_unknown_key_is_looked_up_once_in_a_while_however_often_it_comes() -> None:
    bench, process = await opened()
    for _ in range(10):
        assert not await process.lets_in("dsk_unknown")
    assert process.look_ups == 1
    bench.clock.advance(CACHE_SECONDS)
    assert not await process.lets_in("dsk_unknown")
    assert process.look_ups == 2


async def test_an_unknown_key_that_comes_many_times_at_once_is_looked_up_as_often_as_there_are_look_ups_at_once() -> (
    None
):
    _, process = await opened()
    assert not any(await asyncio.gather(*(process.lets_in("dsk_unknown") for _ in range(100))))
    assert process.look_ups <= keyring._LOOKUPS_MAX


async def test_a_key_that_was_unknown_works_within_seconds_of_its_making_elsewhere() -> None:
    bench, process = await opened()
    assert not await process.lets_in("dsk_given")
    await put(bench.store, a_record("dsk_given", bench))
    bench.clock.advance(CACHE_SECONDS)
    assert await process.lets_in("dsk_given")


async def test_a_new_key_works_at_once_where_it_was_made_and_needs_no_look_up() -> None:
    bench, process = await opened()
    key = await process.make(bench.org.org_id)
    assert await process.lets_in(key)
    assert process.look_ups == 0


async def test_a_good_key_that_nobody_has_seen_yet_is_let_in_during_a_flood_of_made_up_ones() -> None:
    bench, process = await opened()
    key = await Process(bench).make(bench.org.org_id)
    flood = (process.lets_in(f"dsk_{number}") for number in range(1_000))
    assert (await asyncio.gather(process.lets_in(key), *flood)).count(True) == 1


async def test_a_flood_of_made_up_keys_has_few_look_ups_under_way_at_once() -> None:
    bench, process = await opened()
    now, most = 0, 0

    async def find(org_id: UUID | None, query: KeysByDigest) -> list[ApiKey]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return []

    bench.failing.answers["find KeysByDigest"] = find
    await asyncio.gather(*(process.lets_in(f"dsk_{number}") for number in range(100)))
    assert most == keyring._LOOKUPS_MAX


async def test_the_memory_of_unknown_keys_has_an_end() -> None:
    _, process = await opened()
    for number in range(keyring._CACHE_MAX + 100):
        await process.lets_in(f"dsk_{number}")
    assert len(process.keyring._unknown) <= keyring._CACHE_MAX


async def test_a_revoked_key_is_refused_at_once_and_is_not_looked_up_at_each_request() -> None:
    bench, process = await opened()
    await process.make(bench.org.org_id)
    record, key = await process.keyring.create(bench.org.org_id, "b", Role.ADMIN, "ops")
    assert await process.lets_in(key)
    await process.keyring.revoke(bench.org.org_id, record.key_id, "ops")
    assert not any([await process.lets_in(key) for _ in range(10)])
    assert process.look_ups == 0


def a_record(key: str, bench: Bench) -> ApiKey:
    return ApiKey(
        key_id=UUID(int=1),
        org_id=bench.org.org_id,
        name="given",
        role=Role.ADMIN,
        prefix="dsk_",
        digest=keys.digest(key),
        created_at=bench.clock.now(),
    )


async def test_the_line_of_unknown_keys_is_not_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "_QUEUE_MAX", 10)
    bench, process = await opened()
    asked: list[bytes] = []

    async def find(org_id: UUID | None, query: KeysByDigest) -> list[ApiKey]:
        asked.append(query.digest)
        await asyncio.sleep(0)
        return []

    bench.failing.answers["find KeysByDigest"] = find
    flood = [process.lets_in(f"dsk_{number}") for number in range(30)]
    answers = await asyncio.gather(*flood, return_exceptions=True)
    assert [one for one in answers if one is not False] == [one for one in answers if isinstance(one, Overloaded)]
    assert (answers.count(False), len(asked)) == (10, 10)
    assert not await process.lets_in("dsk_later"), "who comes when the line is gone is looked up"


async def test_a_key_that_is_revoked_while_it_is_looked_up_stays_revoked() -> None:
    bench, process = await opened()
    await process.make(bench.org.org_id)
    key = await Process(bench).make(bench.org.org_id)
    (old,) = await bench.store.find(None, KeysByDigest(digest=keys.digest(key)))
    assert await process.lets_in(key)
    bench.clock.advance(CACHE_SECONDS)

    async def late(org_id: UUID | None, query: KeysByDigest) -> list[ApiKey]:
        """Return the key that was read before it was revoked."""
        await process.keyring.revoke(bench.org.org_id, old.key_id, "ops")
        return [old]

    bench.failing.answers["find KeysByDigest"] = late
    assert not await process.lets_in(key)
    assert not await process.lets_in(key)
