"""R10.2, R10.3: the figures are exact after any number of kills: a change and its count share one transaction."""

from __future__ import annotations

import asyncio
import os

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY
from doorstep.model.rollup import Figures
from doorstep.stores.open import store_from_url
from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.controls import until_caught
from tests.faults.harness.databases import Database, Hurt, SqliteDatabase
from tests.faults.harness.installation import Installation, await_condition
from tests.faults.harness.nemesis import kills
from tests.faults.harness.trial import drain, run_trial, start_ledger
from tests.support.recounting import all_events, differing, recount
from tests.support.shortcuts import totals

SECONDS = 60 if os.environ.get("TORTURE") else 5


def test_the_figures_are_exact_after_every_process_was_killed_over_and_over(
    install: Install, database: Database
) -> None:
    installation = install(database)
    _furnish(installation)
    installation.add_worker()
    crashes = {name: hurt for name, hurt in database.faults(0.5).items() if name.startswith("kill")}
    trial = run_trial(
        installation,
        _kills(installation) | crashes,
        types="plain=6,fan=3,hostile=1",
        seconds=SECONDS,
        until=lambda: _enough_to_count(database),
    )
    wrong, figures = asyncio.run(_miscounted(database))
    print(f"\nfigures on {database.name}: {trial.verdict.faults} faults, {figures.created} events, wrong: {wrong}")
    assert wrong == []
    assert figures.created > 100 and figures.attempts > figures.created and figures.died, str(figures)


@pytest.mark.full
def test_counting_in_a_transaction_of_its_own_is_found_out(install: Install, sqlite_database: SqliteDatabase) -> None:
    installation = install(sqlite_database, program=program("count-apart"))
    installation.receive("ok", "flaky", "slow")
    installation.serve()
    installation.enrol("plain", "fan")
    until_caught(lambda: _kill_once(installation), lambda wrong: wrong)


def _kill_once(installation: Installation) -> list[tuple[str, int, int]]:
    """Kill the server under load, wait until everything is idle, and return the figures that are wrong."""
    tried = _attempts(installation)
    ledger = start_ledger(installation, "plain=6,fan=3")
    await_condition(lambda: _attempts(installation) > tried + 20, "some attempts")
    installation.server.kill()
    ledger.stop()
    installation.await_ready()
    drain(installation)
    wrong, _ = asyncio.run(_miscounted(installation.database))
    return wrong


def _enough_to_count(database: Database) -> bool:
    """Whether there are over a hundred events, including some that fail temporarily and some that fail permanently."""
    ((events,),) = database.rows("SELECT count(*) FROM doorstep_events")
    ((hostile,),) = database.rows("SELECT count(*) FROM doorstep_events WHERE event_type = 'hostile'")
    return bool(events > 100 and hostile > 2)


def _attempts(installation: Installation) -> int:
    return int(installation.database.rows("SELECT count(*) FROM doorstep_attempts")[0][0])


def _kills(installation: Installation) -> dict[str, Hurt]:
    """Kills of the processes that count, which are Doorstep's own."""
    engines = {f"kill {process.name}" for process in installation.engines}
    return {name: hurt for name, hurt in kills(installation).items() if name in engines}


def _furnish(installation: Installation) -> None:
    installation.receive("ok", "flaky", "slow")
    installation.receive("dribble", "endless", "reset")
    installation.serve()
    installation.enrol("plain", "fan", "hostile")


async def _miscounted(database: Database) -> tuple[list[tuple[str, int, int]], Figures]:
    """Where the figures differ from the rows, before and after aggregation; and the figures themselves."""
    store = store_from_url(database.url)
    await store.open()
    try:
        counted = await recount(store, DEFAULT_ORG, await all_events(store, DEFAULT_ORG))
        owners = [owner for owner in counted if owner is not None]
        wrong = []
        for _ in range(2):
            wrong += differing(await totals(store, DEFAULT_ORG), counted[None])
            levels = await store.figures(DEFAULT_ORG, owners)
            wrong += [found for owner in owners for found in differing(levels[owner], counted[owner])]
            await store.aggregate(await store.time() + DAY, 10_000)
        return wrong, await totals(store)
    finally:
        await store.close()
