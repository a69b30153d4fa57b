"""Runs the measurements, prints each figure with its target, and stores them in bench/results."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator

from bench.databases import Databases, StoreName
from bench.figures import Figure, keep, print_figure, print_summary
from bench.measures import (
    accept,
    bulk,
    claim,
    console,
    dispatch,
    fairness,
    handlers,
    idle,
    inbox,
    indexes,
    latency,
    lists,
    memory,
    processes,
    reads,
    recovery,
    reschedule,
    retries,
    search,
    single,
    stats,
    telemetry,
    tenants,
)
from bench.receiver import Receiver
from bench.rivals import measure as rivals
from bench.setting import Setting

MEASURES: dict[str, Callable[[Setting], Iterator[Figure]]] = {
    "dispatch": dispatch.measure,
    "handlers": handlers.measure,
    "telemetry": telemetry.measure,
    "accept": accept.measure,
    "latency": latency.measure,
    "single": single.measure,
    "fairness": fairness.measure,
    "retries": retries.measure,
    "reschedule": reschedule.measure,
    "recovery": recovery.measure,
    "reads": reads.measure,
    "inbox": inbox.measure,
    "lists": lists.measure,
    "stats": stats.measure,
    "search": search.measure,
    "indexes": indexes.measure,
    "console": console.measure,
    "bulk": bulk.measure,
    "claim": claim.measure,
    "idle": idle.measure,
    "processes": processes.measure,
    "memory": memory.measure,
    "tenants": tenants.measure,
}
ON_REQUEST: dict[str, Callable[[Setting], Iterator[Figure]]] = {
    "recovery-10min": recovery.measure_long,
    "rivals": rivals.measure,
}
"""Measurements that run only if they are named: the first takes over an hour, and `rivals` installs third-party packages
into a separate environment."""


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that child processes are stopped too
    started = time.monotonic()
    figures: list[Figure] = []
    with Databases() as databases, Receiver() as receiver:
        setting = Setting(databases, receiver, _stores(arguments.store), arguments.quick, arguments.only)
        broken = [name for name in arguments.names or MEASURES if not _run(name, setting, figures)]
    print_summary(figures)
    for name in broken:
        print(f"  BROKEN: {name} did not finish, see above")
    elapsed = time.monotonic() - started
    path = keep(figures, quick=arguments.quick, seconds=elapsed)
    print(f"{elapsed:.0f} seconds; results stored in bench/results/{path.name}")
    sys.exit(1 if broken else 0)


def _run(name: str, setting: Setting, figures: list[Figure]) -> bool:
    """Add the figures of one measurement. Returns False if it failed, and the others still run."""
    started = time.monotonic()
    print(f"\n{name}", flush=True)
    try:
        for figure in (MEASURES | ON_REQUEST)[name](setting):
            print_figure(figure)
            figures.append(figure)
    except Exception:  # noqa: BLE001  printed with its traceback
        traceback.print_exc(file=sys.stdout)
        return False
    print(f"  {time.monotonic() - started:.0f} s", flush=True)
    return True


def _stores(choice: str) -> tuple[StoreName, ...]:
    return ("sqlite", "postgres") if choice == "both" else ("sqlite",) if choice == "sqlite" else ("postgres",)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    names = [*MEASURES, *ON_REQUEST]
    parser.add_argument("names", nargs="*", metavar="name", choices=[*names, []], help=", ".join(names))
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--only", default="", metavar="TEXT", help="of recovery, only cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="smaller numbers, a few minutes in all")
    return parser.parse_args()


if __name__ == "__main__":
    main()
