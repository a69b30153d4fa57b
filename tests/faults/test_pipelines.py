"""Workers of a pipeline die at any moment: each entity ends in a correct state, and no stage is lost.

Entities pass two gates. The reviewers of all workers decide there at the same time, and may die while deciding.
Meanwhile an operator retries rejected entities, and failed ones just before their next attempt. TORTURE=1 does it with
ten times as many entities.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest

from doorstep import Entity
from doorstep.encryption import new_secret_key
from doorstep.errors import Conflict, NotRetryable
from tests.faults.harness.controls import until_caught
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.occasion import enough
from tests.faults.harness.processes import Keeper, KeptProcess
from tests.faults.pipeline_app import make
from tests.faults.pipeline_verdict import Life, all_entities, faults, lives_of
from tests.support.patience import PATIENCE_SECONDS

_TORTURE = bool(os.environ.get("TORTURE"))
_ENTITIES = 1_000 if _TORTURE else 100
_NEMESIS_SECONDS = 90.0 if _TORTURE else 8.0
_BROKEN_ENTITIES, _BROKEN_SECONDS = 30, 3.0
"""A broken build needs fewer entities. It dies by itself at the broken place, so nobody else kills it."""
_FIRST_KILL_SECONDS = 3.0
_DEATHS_MIN = 8
"""The trial goes on until this many workers have died, because on a busy machine workers take long to restart."""
_END_SECONDS_MAX = 2 * PATIENCE_SECONDS if _TORTURE else PATIENCE_SECONDS
_LOOK_SECONDS = 0.3
_CHANCE_OF_A_HASTY_RETRY = 0.2


class Ended(NamedTuple):
    """Everything that the tests examine."""

    lives: list[Life]
    found: list[str]
    deaths: int

    def __str__(self) -> str:
        statuses = Counter(life.entity.status for life in self.lives)
        acts = sum((life.audited for life in self.lives), Counter())
        twice = sum(sum(life.effects.values()) - len(life.done) for life in self.lives)
        kinds = Counter(fault.partition(": ")[2] for fault in self.found)
        return (
            f"{len(self.lives)} entities, {self.deaths} deaths, {dict(statuses)}, {dict(acts)}, "
            f"{twice} stages again, {len(self.found)} faults {dict(kinds.most_common(3))}"
        )


class Trial:
    """Two workers that kill themselves and are killed from outside; then a quiet phase until nothing is in progress."""

    def __init__(
        self, database: Database, folder: Path, entities: int, nemesis_seconds: float, *, killed: bool = True
    ) -> None:
        self._database = database
        self._folder = folder
        self._entities = entities
        self._nemesis_seconds = nemesis_seconds
        self._killed = killed
        self._dice = random.Random(7)
        self._doorstep, self._pipeline = make(database.url)

    async def run(self, **environment: str) -> Ended:
        await self._doorstep.open()
        keeper = Keeper()
        try:
            workers = [keeper.keep(self._worker(f"worker-{n}", environment)) for n in range(2)]
            await asyncio.gather(self._start_all(), self._kill_at_random(workers))
            (self._folder / "peace").touch()
            await self._until_all_is_over()
            assert all(code == -9 for worker in workers for code in worker.exits), "nothing ended but by being killed"
        finally:
            keeper.close()
        try:
            lives = await lives_of(self._doorstep, self._pipeline, self._folder / "effects")
            return Ended(lives, faults(self._pipeline.plan, lives, self._entities), _deaths(workers))
        finally:
            await self._doorstep.close()

    def _worker(self, name: str, environment: dict[str, str]) -> KeptProcess:
        given = os.environ | {
            "DOORSTEP_DATABASE_URL": self._database.url,
            "DOORSTEP_LEASE_SECONDS": "2",
            "DOORSTEP_TIMEOUT_SECONDS": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        return KeptProcess(name, [sys.executable, "-m", "tests.faults.pipeline_app"], given | environment, self._folder)

    async def _start_all(self) -> None:
        """Start the entities one after another, so that there is work whenever a worker dies."""
        for n in range(self._entities):
            await self._pipeline.start({}, f"p{n}")
            await asyncio.sleep(self._nemesis_seconds / self._entities)

    async def _kill_at_random(self, workers: Sequence[KeptProcess]) -> None:
        end = time.monotonic() + self._nemesis_seconds
        kill_at = time.monotonic() + _FIRST_KILL_SECONDS
        deaths_min = _DEATHS_MIN if self._killed else 0
        while time.monotonic() < end or (_deaths(workers) < deaths_min and time.monotonic() < end + PATIENCE_SECONDS):
            await self._operate()
            await asyncio.sleep(_LOOK_SECONDS)
            if self._killed and time.monotonic() > kill_at:
                self._dice.choice(workers).kill()
                kill_at = time.monotonic() + self._dice.uniform(1.5, 3.0)

    async def _operate(self) -> None:
        """Retry all rejected entities and some failed ones, shortly before or after their next attempt begins."""
        for status in ("extraction_failed", "grounding_failed", "dead_letter"):
            for entity in (await self._pipeline.list(status, limit=50)).items:
                if self._wants(entity):
                    with contextlib.suppress(Conflict, NotRetryable):
                        await self._pipeline.retry(entity.entity_id, "operator")

    def _wants(self, entity: Entity) -> bool:
        if entity.status == self._pipeline.plan.dead:
            return bool(entity.metadata["error"]["code"] == "REJECTED")
        return self._dice.random() < _CHANCE_OF_A_HASTY_RETRY

    async def _until_all_is_over(self) -> None:
        """Wait until each entity is complete, or dead for a reason other than a rejection. The verdict judges those."""
        give_up_at = time.monotonic() + _END_SECONDS_MAX
        while under_way := [one async for one in all_entities(self._pipeline) if not self._is_over(one)]:
            assert time.monotonic() < give_up_at, f"stuck for ever: {under_way[:3]} and {len(under_way) - 3} more"
            await self._operate()
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_over(self, entity: Entity) -> bool:
        dead = entity.status == self._pipeline.plan.dead and entity.metadata["error"]["code"] != "REJECTED"
        return dead or entity.status == self._pipeline.plan.last


def _deaths(workers: Sequence[KeptProcess]) -> int:
    return sum(len(worker.exits) for worker in workers)


@pytest.fixture(autouse=True)
def _one_secret_key_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOORSTEP_SECRET_KEY", new_secret_key())


async def test_however_workers_die_each_entity_ends_in_a_true_state(database: Database, tmp_path: Path) -> None:
    ended = await Trial(database, tmp_path, _ENTITIES, _NEMESIS_SECONDS).run(CHANCE_OF_DEATH="0.06")
    print(f"\npipelines on {database.name}: {ended}")
    assert ended.found == []
    enough(ended.deaths >= _DEATHS_MIN, f"{ended.deaths} deaths")


@pytest.mark.parametrize(
    ("broken", "seen"),
    [("send-outside", "nothing carried it on"), ("write-over", "came a step from")],
)
@pytest.mark.full
def test_the_harness_catches_an_event_sent_outside_of_the_transaction_and_a_write_over_another(
    tmp_path: Path, broken: str, seen: str
) -> None:
    def play() -> Ended:
        folder = Path(mkdtemp(dir=tmp_path))
        trial = Trial(SqliteDatabase(folder), folder, _BROKEN_ENTITIES, _BROKEN_SECONDS, killed=False)
        return asyncio.run(trial.run(CHANCE_OF_DEATH="0.1", BROKEN=broken))

    until_caught(play, lambda ended: any(seen in fault for fault in ended.found))
