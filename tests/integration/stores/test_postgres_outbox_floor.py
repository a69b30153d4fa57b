"""Outbox reads start above a floor only while full reads are slow, and a late commit is never missed for long."""

from __future__ import annotations

import asyncpg
import pytest

from doorstep.stores.sql.postgres import PostgresStore
from doorstep.stores.sql.postgres.floors import FULL_PAUSE_SECONDS, SLOW_READS, OutboxFloor
from doorstep.stores.store import Topic
from tests.contract.test_outbox import a_message, ids_in_outbox
from tests.support.builders import an_org
from tests.support.shortcuts import post, put
from tests.unit.stores.elapsed import Elapsed

FAST, SLOW = OutboxFloor.SLOW_SECONDS / 2, OutboxFloor.SLOW_SECONDS * 2


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


def a_slow_one(elapsed: Elapsed) -> OutboxFloor:
    floor = OutboxFloor(elapsed)
    for _ in range(SLOW_READS):
        floor.found_nothing(0, SLOW)
    assert floor.needed
    return floor


def test_while_looks_are_fast_every_look_is_a_full_one(elapsed: Elapsed) -> None:
    floor = OutboxFloor(elapsed)
    floor.found(0, 500, FAST)
    elapsed.seconds += OutboxFloor.SLACK_SECONDS
    floor.found_nothing(0, FAST)
    assert floor.now() == 0


def test_one_fast_look_ends_it(elapsed: Elapsed) -> None:
    floor = a_slow_one(elapsed)
    floor.found_nothing(0, FAST)
    assert not floor.needed


def test_the_floor_is_what_was_read_some_seconds_ago_and_not_later(elapsed: Elapsed) -> None:
    floor = a_slow_one(elapsed)
    floor.found(0, 500, SLOW)
    elapsed.seconds += OutboxFloor.SLACK_SECONDS
    floor.found(0, 900, SLOW)
    assert floor.now() == 500


def test_there_is_a_full_look_after_a_pause_that_grows_with_its_cost(elapsed: Elapsed) -> None:
    floor = a_slow_one(elapsed)
    floor.found(0, 500, SLOW)
    elapsed.seconds += OutboxFloor.SLACK_SECONDS
    floor.found_nothing(0, SLOW)
    elapsed.seconds += FULL_PAUSE_SECONDS / 2
    assert floor.now() == 500
    elapsed.seconds += FULL_PAUSE_SECONDS
    assert floor.now() == 0
    floor.found_nothing(0, 1.0)
    elapsed.seconds += 10
    assert floor.now() == 500, "a look of a second is made every twenty"


def test_reading_at_the_bottom_counts_as_a_full_look(elapsed: Elapsed) -> None:
    floor = a_slow_one(elapsed)
    floor.found(0, 500, SLOW)
    elapsed.seconds += OutboxFloor.SLACK_SECONDS
    assert floor.now() == 0
    floor.found(0, 900, SLOW)
    assert floor.now() == 500


async def test_a_pinned_snapshot_makes_looks_slow_only_until_the_floor_is_used_and_hides_nothing(
    postgres_store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutboxFloor, "SLOW_SECONDS", 0.0)  # every read counts as slow
    elapsed = Elapsed()
    postgres_store._outbox_floor = OutboxFloor(elapsed)
    org = an_org()
    await put(postgres_store, org)
    late = await asyncpg.connect(postgres_url)
    await late.execute("BEGIN")
    message = a_message(org.org_id)
    values = (message.event_id, org.org_id, "a.b", b"{}", "{}", 1)
    columns = "uid, org_uid, event_type, payload, options, created_at"
    await late.execute(f"INSERT INTO doorstep_outbox ({columns}) VALUES ($1, $2, $3, $4, $5, $6)", *values)
    early = a_message(org.org_id)
    await post(postgres_store, [early])
    assert await ids_in_outbox(postgres_store) == [early.event_id]
    await postgres_store.clear_outbox([early.event_id])
    elapsed.seconds += OutboxFloor.SLACK_SECONDS
    for _ in range(SLOW_READS):
        assert not await postgres_store.any_waiting(Topic.OUTBOX)
    await late.execute("COMMIT")
    assert not await postgres_store.any_waiting(Topic.OUTBOX), "it is below the floor"
    elapsed.seconds += 10 * FULL_PAUSE_SECONDS
    assert await postgres_store.any_waiting(Topic.OUTBOX)
    assert await ids_in_outbox(postgres_store) == [message.event_id]
    await late.close()
