"""Compares the CPU that two revisions need for the same work: `make bench-against REF=<git ref>`.

Both are built in separate environments and driven over HTTP and the command line only. Short slices alternate
(old new, new old, …), so that other load on the machine affects both alike; each pair of slices gives one ratio.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from bench.against.measurements import Measurement, Run, select
from bench.against.ratios import Comparison, Pair, Verdict
from bench.against.revisions import ROOT, RefError, Revision, build, is_dirty
from bench.against.server import Side, Slice, process_cpu
from bench.receiver import Receiver
from tests.support.postgres_server import PostgresServer


class Stores:
    """Creates databases for both revisions: SQLite files, or databases of one PostgreSQL server."""

    def __init__(self, folder: Path, postgres: PostgresServer | None) -> None:
        self._folder = folder
        self._postgres = postgres
        self._numbers = count(1)

    @property
    def has_server(self) -> bool:
        return self._postgres is not None

    def new_database(self) -> str:
        name = f"against_{next(self._numbers)}"
        if self._postgres is None:
            (self._folder / name).mkdir()
            return f"sqlite:///{self._folder / name / 'doorstep.db'}"
        self._postgres.create_database(name)
        return self._postgres.url(name)

    def server_cpu_seconds(self) -> float:
        pid = None if self._postgres is None else self._postgres.pid
        return 0.0 if pid is None else process_cpu(pid)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """`root` is the repository whose revisions are compared."""
    options = parse(arguments)
    try:
        old, new = build(options.ref, root), build(options.here, root)
    except RefError as error:
        sys.exit(str(error))
    if options.here == "HEAD" and is_dirty(root):
        print("the working tree has uncommitted changes, which are not measured")
    print(f"CPU, {new} ÷ {old}, pairs of slices on {options.store}: {options.pairs}\n", flush=True)
    comparisons: list[Comparison] = []
    broken = [one.name for one in options.only if not _measure(one, old, new, options, comparisons)]
    print(f"\n{summary(comparisons)}")
    for name in broken:
        print(f"BROKEN: {name} did not finish, see above")
    return 1 if broken else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.against", description=__doc__.partition("\n")[0])
    parser.add_argument("ref", help="the git ref to compare with")
    parser.add_argument("--here", default="HEAD", help="the git ref to evaluate (default: HEAD)")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of slices (default: 10)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="measurements, such as: accept start")
    options = parser.parse_args(arguments)
    if options.pairs < 1:
        parser.error(f"--pairs must be at least 1, got {options.pairs}")
    try:
        options.only = select(options.only)
    except ValueError as error:
        parser.error(str(error))
    return options


def summary(comparisons: Sequence[Comparison]) -> str:
    """The overall verdict, in one line."""
    groups = {verdict: [one.name for one in comparisons if one.verdict is verdict] for verdict in Verdict}
    return "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in groups.items() if names)


def _measure(
    measurement: Measurement,
    old: Revision,
    new: Revision,
    options: argparse.Namespace,
    comparisons: list[Comparison],
) -> bool:
    """Add and print the comparisons of one measurement. Returns False if it failed, and the others still run."""
    try:
        with _stores(options.store) as (stores, folder), Receiver() as receiver:
            sides = [
                Side(revision, folder / name, stores.new_database) for revision, name in ((old, "old"), (new, "new"))
            ]
            for one in compare(measurement, sides, receiver, stores, options.pairs):
                print(one, flush=True)
                comparisons.append(one)
    except Exception:  # noqa: BLE001  printed with its traceback
        traceback.print_exc(file=sys.stdout)
        return False
    return True


@contextmanager
def _stores(store: str) -> Iterator[tuple[Stores, Path]]:
    with tempfile.TemporaryDirectory(prefix="doorstep-against-") as name:
        folder = Path(name)
        for side in ("old", "new"):
            (folder / side).mkdir()
        postgres = PostgresServer(options=["max_wal_size=4GB"]).start() if store == "postgresql" else None
        try:
            yield Stores(folder, postgres), folder
        finally:
            if postgres is not None:
                postgres.destroy()


def compare(
    measurement: Measurement, sides: Sequence[Side], receiver: Receiver, stores: Stores, pairs: int
) -> Iterator[Comparison]:
    """Compare the CPU of the program and, on PostgreSQL, of the database server. The first slices only warm up."""
    own: list[Pair] = []
    database: list[Pair] = []
    with measurement.open(sides[0], receiver) as old, measurement.open(sides[1], receiver) as new:
        old(), new()
        for number in range(pairs):
            spent = _pair(old, new, stores, new_first=number % 2 == 1)
            own.append(Pair(*(measurement.scale * one.cpu_seconds / one.units for one, _ in spent)))
            database.append(Pair(*(measurement.scale * server / one.units for one, server in spent)))
    yield Comparison(measurement.name, measurement.unit, own)
    if stores.has_server and all(pair.old for pair in database):  # `doorstep --help` needs no database
        yield Comparison(f"{measurement.name} (database)", measurement.unit, database)


def _pair(old: Run, new: Run, stores: Stores, *, new_first: bool) -> list[tuple[Slice, float]]:
    """A slice of each revision, with the database server's CPU during the slice. The old revision's result comes first,
    no matter which revision ran first."""
    spent = [_timed(run, stores) for run in ((new, old) if new_first else (old, new))]
    return spent[::-1] if new_first else spent


def _timed(run: Run, stores: Stores) -> tuple[Slice, float]:
    before = stores.server_cpu_seconds()
    return run(), stores.server_cpu_seconds() - before


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the servers are stopped too
    sys.exit(main())
