"""Handling each webhook only once: the same rules apply to every ledger."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doorstep.receiver import Ledger, MemoryLedger, Once, SqliteLedger, Standing, StillHandling

KEEP_SECONDS = 1_000.0


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger(keep_seconds=KEEP_SECONDS)
        return
    ledger = SqliteLedger(tmp_path / "handled.db", keep_seconds=KEEP_SECONDS)
    yield ledger
    ledger.close()


@pytest.fixture
def once(ledger: Ledger, time: Time) -> Once:
    return Once(ledger, hold_seconds=60, clock=time)


def handled(once: Once, webhook_id: str = "a") -> bool:
    with once(webhook_id) as first:
        return first


def test_the_first_is_let_through_and_the_others_are_not(once: Once) -> None:
    assert [handled(once), handled(once), handled(once, "b"), handled(once)] == [True, False, True, False]


def test_after_a_failure_the_next_is_the_first_again(once: Once) -> None:
    with pytest.raises(ZeroDivisionError), once("a"):
        raise ZeroDivisionError
    assert handled(once)
    assert not handled(once)


def test_a_failure_on_a_duplicate_does_not_make_it_new(once: Once) -> None:
    assert handled(once)
    with pytest.raises(ZeroDivisionError), once("a"):
        raise ZeroDivisionError
    assert not handled(once)


def test_one_that_comes_while_the_same_is_being_handled_must_come_back_later(once: Once) -> None:
    with once("a"):
        with pytest.raises(StillHandling), once("a"):
            pytest.fail("it was let through")
        assert handled(once, "b")
    assert not handled(once)


def test_a_handler_that_was_killed_holds_its_webhook_only_for_a_while(ledger: Ledger, once: Once, time: Time) -> None:
    assert ledger.claim("a", time(), time() + 60) is Standing.NEW
    time.now = 59
    with pytest.raises(StillHandling):
        handled(once)
    time.now = 60
    assert handled(once)


def test_a_handler_that_was_overtaken_does_not_give_up_the_claim_of_its_successor(ledger: Ledger) -> None:
    assert ledger.claim("a", 0, 60) is Standing.NEW
    assert ledger.claim("a", 61, 121) is Standing.NEW
    ledger.release("a", 60)
    assert ledger.claim("a", 62, 122) is Standing.HANDLING


def test_an_id_is_forgotten_after_its_time(once: Once, time: Time) -> None:
    assert handled(once)
    time.now = KEEP_SECONDS - 1
    assert not handled(once)
    time.now = KEEP_SECONDS
    assert handled(once)


def test_of_many_threads_one_is_the_first(ledger: Ledger) -> None:
    gate = threading.Barrier(8)

    def claim(_: int) -> Standing:
        gate.wait()
        return ledger.claim("a", 0, 60)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(claim, range(8))).count(Standing.NEW) == 1


def test_a_full_memory_forgets_the_oldest() -> None:
    ledger = MemoryLedger(entries_max=2)
    once = Once(ledger)
    assert [handled(once, name) for name in "abc"] == [True] * 3
    assert ledger._connection.execute("SELECT count(*) FROM webhook").fetchone() == (2,)
    assert not handled(once, "c")
    assert handled(once, "a")


def test_the_file_is_remembered_over_a_restart_and_stops_growing(tmp_path: Path) -> None:
    path = tmp_path / "handled.db"
    first = SqliteLedger(path, keep_seconds=10)
    for number in range(50):
        first.finish(str(number), now=0)
    first.close()
    again = SqliteLedger(path, keep_seconds=10)
    assert again.claim("7", 5, 65) is Standing.HANDLED
    again.claim("new", 20, 80)
    (left,) = again._connection.execute("SELECT count(*) FROM webhook").fetchone()
    again.close()
    assert left == 1


def test_of_many_processes_one_is_the_first(tmp_path: Path) -> None:
    path = tmp_path / "handled.db"
    SqliteLedger(path).close()
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_claim, [str(path)] * 6, chunksize=1).count("new") == 1


def _claim(path: str) -> str:
    ledger = SqliteLedger(path)
    try:
        return ledger.claim("a", 0, 60).value
    finally:
        ledger.close()
