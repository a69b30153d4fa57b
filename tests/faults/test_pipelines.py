"""Workers of a pipeline die at every moment: each entity ends in a true state, and no stage is lost.

TORTURE=1 does it with ten times as many entities.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from doorstep.model.entity import Entity, EntityChange, Phase
from doorstep.pipelines.pipeline import Pipeline
from doorstep.sealing import new_secret_key
from tests.acceptance.protocols import check_chain
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.processes import Keeper, KeptProcess
from tests.faults.pipeline_app import make

_ENTITIES = 1_000 if os.environ.get("TORTURE") else 100
_NEMESIS_SECONDS = 90.0 if os.environ.get("TORTURE") else 8.0
_END_SECONDS_MAX = 90.0
_STAGES = ["extracting", "grounding"]


class Ended(NamedTuple):
    """Everything there is to judge by."""

    entities: list[Entity]
    histories: dict[str, list[EntityChange]]
    effects: Counter[tuple[str, str]]
    deaths: int


async def torment(database: Database, folder: Path, **environment: str) -> Ended:
    """Two workers that die of themselves and are killed; then peace, until nothing is under way."""
    doorstep, pipeline = make(database.url)
    await doorstep.open()
    keeper = Keeper()
    try:
        workers = [keeper.keep(_worker(f"worker-{n}", database, folder, environment)) for n in range(2)]
        await asyncio.gather(_start_all(pipeline), _kill_at_random(workers))
        (folder / "peace").touch()
        await _until_nothing_runs(pipeline)
        deaths = sum(len(worker.exits) for worker in workers)
        assert all(code == -9 for worker in workers for code in worker.exits), "nothing ended but by being killed"
        return await _what_became(pipeline, folder, deaths)
    finally:
        keeper.close()
        await doorstep.close()


def _worker(name: str, database: Database, folder: Path, environment: dict[str, str]) -> KeptProcess:
    given = os.environ | {
        "DOORSTEP_DATABASE_URL": database.url,
        "DOORSTEP_LEASE_SECONDS": "2",
        "DOORSTEP_TIMEOUT_SECONDS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return KeptProcess(name, [sys.executable, "-m", "tests.faults.pipeline_app"], given | environment, folder)


async def _start_all(pipeline: Pipeline) -> None:
    """One after the other, so that there is work whenever someone dies."""
    for n in range(_ENTITIES):
        await pipeline.start({}, f"p{n}")
        await asyncio.sleep(_NEMESIS_SECONDS / _ENTITIES)


async def _kill_at_random(workers: list[KeptProcess]) -> None:
    dice = random.Random(7)
    end = time.monotonic() + _NEMESIS_SECONDS
    while time.monotonic() < end:
        await asyncio.sleep(dice.uniform(1.5, 3.0))
        dice.choice(workers).kill()


async def _until_nothing_runs(pipeline: Pipeline) -> None:
    give_up_at = time.monotonic() + _END_SECONDS_MAX
    while running := [one async for one in _all(pipeline) if one.phase is Phase.RUNNING]:
        assert time.monotonic() < give_up_at, f"stuck for ever: {running}"
        await asyncio.sleep(0.2)


async def _all(pipeline: Pipeline) -> AsyncIterator[Entity]:
    cursor = None
    while True:
        page = await pipeline.list(archived=True, cursor=cursor, limit=200)
        for one in page.items:
            yield one
        cursor = page.next
        if cursor is None:
            return


async def _what_became(pipeline: Pipeline, folder: Path, deaths: int) -> Ended:
    entities = [one async for one in _all(pipeline)]
    histories = {one.entity_id: list(await pipeline.history(one.entity_id)) for one in entities}
    lines = (folder / "effects").read_text().splitlines()
    effects = Counter((stage, entity_id) for stage, entity_id in (line.split() for line in lines))
    return Ended(entities, histories, effects, deaths)


def faults(ended: Ended) -> list[str]:
    """What must not be: pure, so that it can be shown to find something."""
    found = [] if len(ended.entities) == _ENTITIES else [f"{len(ended.entities)} of {_ENTITIES} entities are there"]
    for entity in ended.entities:
        check_chain(ended.histories[entity.entity_id])
        code = entity.metadata.get("error", {}).get("code")
        if entity.status == "dead_letter" and code == "LOST":
            found.append(f"{entity.entity_id}: nothing carried it on")
        elif entity.status not in ("pending_review", "dead_letter"):
            found.append(f"{entity.entity_id} is {entity.status}")
        if entity.status == "pending_review" and entity.data != {"did": _STAGES}:
            found.append(f"{entity.entity_id} has {entity.data}")
        done = [stage for stage in entity.data.get("did", ()) if not ended.effects[stage, entity.entity_id]]
        found += [f"{entity.entity_id}: {stage} left no effect" for stage in done]
    return found


def _tell(name: str, ended: Ended) -> None:
    statuses = Counter(one.status for one in ended.entities)
    twice = sum(count - 1 for count in ended.effects.values())
    print(f"\npipelines on {name}: {_ENTITIES} entities, {ended.deaths} deaths, {dict(statuses)}, {twice} stages again")


@pytest.fixture(autouse=True)
def _one_secret_key_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOORSTEP_SECRET_KEY", new_secret_key())


async def test_however_workers_die_each_entity_ends_in_a_true_state(database: Database, tmp_path: Path) -> None:
    ended = await torment(database, tmp_path, CHANCE_OF_DEATH="0.06")
    _tell(database.name, ended)
    assert faults(ended) == []
    assert ended.deaths >= 2


async def test_the_harness_catches_an_event_that_is_sent_outside_of_the_transaction(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    ended = await torment(sqlite_database, tmp_path, CHANCE_OF_DEATH="0.1", SEND_OUTSIDE="1")
    _tell("sqlite, broken", ended)
    assert any("nothing carried it on" in fault for fault in faults(ended))
