"""Floors for due times are used only while sweeps are slow, and never hide a delivery for longer than one sweep
interval."""

from __future__ import annotations

import asyncpg
import pytest

from doorstep.clock import SECOND
from doorstep.model.claim import Quota
from doorstep.stores.sql.postgres import PostgresStore, claim
from doorstep.stores.sql.postgres.floors import FULL_PAUSE_SECONDS, SLOW_READS, DueFloors
from tests.support.builders import NOW, a_submission, an_endpoint, an_org
from tests.support.shortcuts import put, routing_versions
from tests.unit.stores.elapsed import Elapsed
from tests.unit.stores.explaining import buffers

SLOW, FAST = 0.5, 0.001


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


@pytest.fixture
def slow(elapsed: Elapsed) -> DueFloors:
    """Floors that are active after enough slow sweeps; endpoint 1 has had work waiting since NOW."""
    floors = DueFloors(elapsed)
    for _ in range(SLOW_READS):
        floors.swept([(1, NOW)], 1, SLOW)
    return floors


def test_nothing_is_left_out_while_sweeps_are_fast(elapsed: Elapsed) -> None:
    floors = DueFloors(elapsed)
    floors.swept([(1, NOW)], 1, FAST)
    assert floors.full_read_due
    assert floors.of(1) == 0


def test_one_slow_sweep_is_an_accident(elapsed: Elapsed) -> None:
    floors = DueFloors(elapsed)
    floors.swept([], 0, SLOW)
    floors.swept([], 0, FAST)
    for _ in range(SLOW_READS - 1):
        floors.swept([], 0, SLOW)
    assert floors.full_read_due


def test_many_lanes_may_take_longer(elapsed: Elapsed) -> None:
    floors = DueFloors(elapsed)
    for _ in range(SLOW_READS):
        floors.swept([(key, NOW) for key in range(10_000)], 10_000, SLOW)
    assert not floors.needed


def test_slow_sweeps_pause_and_take_a_small_share_of_the_time(slow: DueFloors, elapsed: Elapsed) -> None:
    assert not slow.full_read_due
    elapsed.seconds = 9.9
    assert not slow.full_read_due
    elapsed.seconds = SLOW / 0.05
    assert slow.full_read_due


def test_a_sweep_of_middling_length_is_repeated_within_a_second(elapsed: Elapsed) -> None:
    floors = DueFloors(elapsed)
    for _ in range(SLOW_READS):
        floors.swept([], 0, 0.03)
    elapsed.seconds = FULL_PAUSE_SECONDS
    assert floors.full_read_due


def test_a_lane_is_searched_from_the_last_claimed_due_time_on(slow: DueFloors) -> None:
    slow.claimed([(1, NOW - 2 * SECOND), (1, NOW - SECOND)], NOW)
    assert slow.of(1) == NOW - SECOND


def test_a_floor_stays_behind_now_for_commits_that_come_late(slow: DueFloors) -> None:
    slow.claimed([(1, NOW)], NOW)
    assert slow.of(1) == NOW - DueFloors.SLACK


def test_forced_claims_move_no_floor(slow: DueFloors) -> None:
    slow.claimed([(1, None)], NOW + SECOND)
    assert slow.of(1) == NOW


def test_a_sweep_brings_back_what_came_in_below_the_floor(slow: DueFloors) -> None:
    slow.claimed([(1, NOW)], NOW + SECOND)
    slow.swept([(1, NOW - SECOND)], 1, SLOW)
    assert slow.of(1) == NOW - SECOND


def test_a_fast_sweep_ends_it(slow: DueFloors) -> None:
    slow.swept([(1, NOW)], 1, FAST)
    assert slow.full_read_due
    assert slow.of(1) == 0


async def test_a_pinned_snapshot_makes_sweeps_dear_and_leaves_looking_from_the_floors_cheap(
    postgres_store: PostgresStore, postgres_url: str
) -> None:
    org = an_org()
    await put(postgres_store, org)
    endpoint = an_endpoint(org.org_id)
    await put(postgres_store, endpoint, 0)
    pinned = await asyncpg.connect(postgres_url)
    await pinned.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM doorstep_variables")
    version = await routing_versions(postgres_store)
    made = [a_submission(org.org_id, [endpoint.endpoint_id], due_at=NOW + n) for n in range(2_000)]
    await postgres_store.accept(made, version, NOW)
    quotas = [Quota(endpoint.endpoint_id, 1_990)]
    assert len(await postgres_store.claim(quotas, NOW + SECOND, NOW + 60 * SECOND, "w")) == 1_990
    async with postgres_store._hot.connection() as connection:
        swept = await buffers(connection, claim.SWEEP)
        looked = await buffers(connection, claim.SWEEP_FROM_FLOORS, [1], [NOW + 1_989])
        found = await connection.fetch(claim.SWEEP_FROM_FLOORS, [1], [NOW + 1_989])
    await pinned.close()
    assert [row["due_at"] for row in found] == [NOW + 1_990]
    assert looked * 5 < swept
