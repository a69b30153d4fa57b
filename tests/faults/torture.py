"""The long version: trial after trial, each with a new seed, until the time is up or a promise is broken.

    python -m tests.faults.torture [--minutes N] [--store sqlite|postgres] [--seed S]

Every trial prints its seed, its number and its counts. The first broken promise ends the run with exit code 1. The same
seed produces the same faults in the same order.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.harness.databases import Database, Hurt, PostgresDatabase, SqliteDatabase
from tests.faults.harness.installation import Installation
from tests.faults.harness.nemesis import kills, pauses
from tests.faults.harness.trial import run_trial
from tests.faults.harness.vitals import Vitals
from tests.faults.power import Cut, cut_power, record
from tests.support.postgres_server import PostgresServer

_TRIAL_SECONDS = 60.0
_OUTAGE_SECONDS = 3.0
_CUTS = 1_000
_POWER_REQUESTS = 400

Plan = Callable[[Installation], dict[str, Hurt]]


def everything(installation: Installation) -> dict[str, Hurt]:
    return kills(installation) | pauses(installation) | database_only(installation)


def database_only(installation: Installation) -> dict[str, Hurt]:
    return installation.database.faults(_OUTAGE_SECONDS)


PLANS: dict[str, Plan] = {"kill -9": kills, "everything at once": everything, "database": database_only}


class Tally:
    """The sum of all trials."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    def add(self, name: str, report: str, broken: bool, **counts: int) -> None:
        print(f"{name}: {report}", flush=True)
        self.counts.update({"trials": 1, **counts})
        if broken:
            self.broken.append(name)

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return f"in all: {listed}; broken promises in: {', '.join(self.broken) or 'none'}"


def torture(stores: list[str], seconds: float, first_seed: int) -> Tally:
    """Run trials for all stores and plans in turn until the time is up."""
    tally, deadline = Tally(), time.monotonic() + seconds
    with _databases(stores) as new_database:
        for seed, store, plan in _turns(stores, first_seed):
            if time.monotonic() > deadline or tally.broken:
                return tally
            with _folder() as folder:
                if plan == "power loss":
                    _lose_power(tally, folder, seed)
                else:
                    _try(tally, plan, new_database(store, folder), folder, seed)
    return tally


def _turns(stores: list[str], seed: int) -> Iterator[tuple[int, str, str]]:
    while True:
        for store in stores:
            for plan in [*PLANS, *(["power loss"] if store == "sqlite" else [])]:
                yield seed, store, plan
        seed += 1


def _try(tally: Tally, plan: str, database: Database, folder: Path, seed: int) -> None:
    installation = Installation(folder, database)
    try:
        installation.receive("ok", "flaky", "slow")
        installation.receive("dribble", "endless", "reset")
        installation.serve(workers=1)
        installation.enrol("plain", "fan", "hostile")
        installation.add_worker()
        with Vitals(installation) as vitals:
            trial = run_trial(installation, PLANS[plan](installation), seconds=_TRIAL_SECONDS, seed=seed)
        growths = list(vitals.growths())
        verdict = trial.verdict
        tally.add(
            f"{plan} on {database.name}, seed {seed}",
            f"{trial}\n  {vitals}{''.join(f'; {growth}' for growth in growths)}",
            not trial.clean or bool(growths),
            faults=verdict.faults, acknowledged=verdict.acknowledged, lost=verdict.lost,
            duplicates=verdict.duplicates, late=verdict.late,
        )  # fmt: skip
    finally:
        installation.close()


def _lose_power(tally: Tally, folder: Path, seed: int) -> None:
    inject = f"fsync,fdatasync:error=EIO:when={40 + seed % 7}+{9 + seed % 5}" if seed % 2 else None
    steps = record(folder, requests=_POWER_REQUESTS, seed=seed, inject=inject)
    cuts: list[Cut] = list(cut_power(steps, folder, _CUTS, seed))
    losing = [cut for cut in cuts if cut.lost or cut.integrity != "ok"]
    acknowledged = len(cuts[-1].acknowledged)
    tally.add(
        f"power loss{' after failed syncs' if inject else ''} on sqlite, seed {seed}",
        f"N = {len(cuts)} cuts, acknowledged {acknowledged}, cuts that lost any: {len(losing)}",
        bool(losing),
        cuts=len(cuts), acknowledged=acknowledged, lost=len(losing),
    )  # fmt: skip


@contextmanager
def _databases(stores: list[str]) -> Iterator[Callable[[str, Path], Database]]:
    """Create databases; the PostgreSQL server is started only if it is needed."""
    server = PostgresServer(durable=True).start() if "postgres" in stores else None

    def new(store: str, folder: Path) -> Database:
        return PostgresDatabase(server) if store == "postgres" and server else SqliteDatabase(folder)

    try:
        yield new
    finally:
        if server:
            server.destroy()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="doorstep-torture-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="only this one; both by default")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    stores = [arguments.store] if arguments.store else ["sqlite", "postgres"]
    tally = torture(stores, arguments.minutes * 60, arguments.seed)
    print(tally)
    return 1 if tally.broken else 0


if __name__ == "__main__":
    sys.exit(_main())
