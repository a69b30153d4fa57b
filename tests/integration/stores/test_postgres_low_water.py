"""Low-water marks are used only while sweeps are slow, and never hide a delivery for longer than a sweep's pause."""

from __future__ import annotations

import asyncpg
import pytest

from doorstep.clock import SECOND
from doorstep.model.claim import Quota
from doorstep.stores.sql.postgres import PostgresStore, claim
from doorstep.stores.sql.postgres.low_water import SLACK, SLOW_SWEEPS, SWEEP_PAUSE_SECONDS, LowWater
from tests.support.builders import NOW, a_submission, an_endpoint, an_org
from tests.unit.stores.elapsed import Elapsed
from tests.unit.stores.explaining import buffers

SLOW, FAST = 0.5, 0.001


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


@pytest.fixture
def slow(elapsed: Elapsed) -> LowWater:
    """Marks after as many slow sweeps as it takes; endpoint 1 has work waiting since NOW."""
    marks = LowWater(elapsed)
    for _ in range(SLOW_SWEEPS):
        marks.swept([(1, NOW)], SLOW)
    return marks


def test_nothing_is_left_out_while_sweeps_are_fast(elapsed: Elapsed) -> None:
    marks = LowWater(elapsed)
    marks.swept([(1, NOW)], FAST)
    assert marks.sweep_due
    assert marks.of(1) == 0


def test_one_slow_sweep_is_an_accident(elapsed: Elapsed) -> None:
    marks = LowWater(elapsed)
    marks.swept([], SLOW)
    marks.swept([], FAST)
    for _ in range(SLOW_SWEEPS - 1):
        marks.swept([], SLOW)
    assert marks.sweep_due


def test_many_lanes_may_take_longer(elapsed: Elapsed) -> None:
    marks = LowWater(elapsed)
    for _ in range(SLOW_SWEEPS):
        marks.swept([(key, NOW) for key in range(10_000)], SLOW)
    assert not marks.needed


def test_slow_sweeps_pause_and_take_a_small_share_of_the_time(slow: LowWater, elapsed: Elapsed) -> None:
    assert not slow.sweep_due
    elapsed.seconds = 9.9
    assert not slow.sweep_due
    elapsed.seconds = SLOW / 0.05
    assert slow.sweep_due


def test_a_sweep_of_middling_length_is_repeated_within_a_second(elapsed: Elapsed) -> None:
    marks = LowWater(elapsed)
    for _ in range(SLOW_SWEEPS):
        marks.swept([], 0.03)
    elapsed.seconds = SWEEP_PAUSE_SECONDS
    assert marks.sweep_due


def test_a_lane_is_searched_from_the_last_claimed_due_time_on(slow: LowWater) -> None:
    slow.claimed([(1, NOW - 2 * SECOND), (1, NOW - SECOND)], NOW)
    assert slow.of(1) == NOW - SECOND


def test_a_mark_stays_behind_now_for_commits_that_come_late(slow: LowWater) -> None:
    slow.claimed([(1, NOW)], NOW)
    assert slow.of(1) == NOW - SLACK


def test_forced_claims_move_no_mark(slow: LowWater) -> None:
    slow.claimed([(1, None)], NOW + SECOND)
    assert slow.of(1) == NOW


def test_a_sweep_brings_back_what_came_in_below_the_mark(slow: LowWater) -> None:
    slow.claimed([(1, NOW)], NOW + SECOND)
    slow.swept([(1, NOW - SECOND)], SLOW)
    assert slow.of(1) == NOW - SECOND


def test_a_fast_sweep_ends_it(slow: LowWater) -> None:
    slow.swept([(1, NOW)], FAST)
    assert slow.sweep_due
    assert slow.of(1) == 0


async def test_a_pinned_snapshot_makes_sweeps_dear_and_leaves_looking_from_the_marks_cheap(
    postgres_store: PostgresStore, postgres_url: str
) -> None:
    org = an_org()
    await postgres_store.put_org(org)
    endpoint = an_endpoint(org.org_id)
    await postgres_store.put_endpoint(endpoint, 0)
    pinned = await asyncpg.connect(postgres_url)
    await pinned.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM doorstep_marks")
    version = await postgres_store.routing_version()
    made = [a_submission(org.org_id, [endpoint.endpoint_id], due_at=NOW + n) for n in range(2_000)]
    await postgres_store.accept(made, version, NOW)
    quotas = [Quota(endpoint.endpoint_id, 1_990)]
    assert len(await postgres_store.claim_due(quotas, NOW + SECOND, NOW + 60 * SECOND, "w")) == 1_990
    async with postgres_store._hot.connection() as connection:
        swept = await buffers(connection, claim.SWEEP)
        looked = await buffers(connection, claim.LOOK, [1], [NOW + 1_989])
        found = await connection.fetch(claim.LOOK, [1], [NOW + 1_989])
    await pinned.close()
    assert [row["due_at"] for row in found] == [NOW + 1_990]
    assert looked * 5 < swept
