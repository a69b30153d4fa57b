"""The cost of the same jobs on other queues: `python -m bench rivals`; not run by default.

Rounds of all queues alternate. Only the cheapest round of each queue counts, because other load can only make a round
more expensive. Doorstep does more work (an attempt row, two history rows, an event status, four log lines), and waits
for the disk only when it accepts events. All jobs are queued before the worker starts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from importlib.metadata import version

from bench.figures import Figure, at_least
from bench.rivals.environment import install, redis_binary
from bench.rivals.race import Lap, run_lap
from bench.rivals.roster import ROSTER, Contender
from bench.rivals.survival import JOBS, survivals
from bench.rivals.table import print_table
from bench.setting import Setting

TARGET = at_least(1.0)
"""The bound for the CPU of another queue (worker and server) divided by that of Doorstep on PostgreSQL, with the same
kind of job. No queue should cost less than Doorstep."""


def measure(setting: Setting) -> Iterator[Figure]:
    install()
    for name, words in _versions().items():
        print(f"  {name} {words}", flush=True)
    laps = _laps(setting)
    best = {name: _best(own) for name, own in laps.items()}
    for name, lap in best.items():
        yield from _figures(name, lap)
    yield from _ratios(best)
    runners = [contender for contender in ROSTER if contender.name in best]
    fates = survivals(runners, setting.databases)
    for contender, fate in zip(runners, fates, strict=True):
        yield Figure(f"{contender.name}: jobs lost by kill -9", fate.lost, "", note=f"{fate}; {JOBS} accepted")
    print_table(best, dict(zip(best, fates, strict=True)))


def _laps(setting: Setting) -> dict[str, list[Lap]]:
    """The rounds of each queue. A queue that does not finish is reported and excluded."""
    laps: dict[str, list[Lap]] = {contender.name: [] for contender in ROSTER}
    for _ in range(setting.scaled(2, 1)):
        for contender in ROSTER:
            if contender.name in laps and not _add_lap(setting, contender, laps[contender.name]):
                del laps[contender.name]
    return laps


def _add_lap(setting: Setting, contender: Contender, laps: list[Lap]) -> bool:
    try:
        laps.append(run_lap(contender, setting.databases, setting.scaled(contender.jobs, contender.jobs // 2)))
    except (RuntimeError, subprocess.SubprocessError) as error:
        print(f"  NOT RUN: {error}", flush=True)
        return False
    return True


def _best(laps: list[Lap]) -> Lap:
    return Lap(
        per_second=max(lap.per_second for lap in laps),
        worker_us=min(lap.worker_us for lap in laps),
        server_us=min(lap.server_us for lap in laps),
    )


def _figures(name: str, lap: Lap) -> Iterator[Figure]:
    yield Figure(f"{name}: jobs", lap.per_second, "/s")
    yield Figure(f"{name}: CPU of the worker", lap.worker_us, "µs")
    yield Figure(f"{name}: CPU of the server", lap.server_us, "µs")


def _ratios(best: dict[str, Lap]) -> Iterator[Figure]:
    ours = {one.kind: best[one.name] for one in ROSTER if one.ours and one.broker == "postgres"}
    for rival in ROSTER:
        if not rival.ours and rival.name in best:
            ratio = best[rival.name].cpu_us / ours[rival.kind].cpu_us
            yield Figure(f"{rival.name} ÷ Doorstep, all CPU", ratio, "×", TARGET, f"{rival.kind} job on postgres")


def _versions() -> dict[str, str]:
    """The versions of all queues and brokers."""
    python = str(install() / "python")
    names = ("pgqueuer", "taskiq", "taskiq-redis", "dramatiq", "procrastinate", "celery")
    code = f"from importlib.metadata import version; print(*map(version, {names!r}))"
    rivals = dict(zip(names, subprocess.check_output([python, "-c", code], text=True).split(), strict=True))
    redis = subprocess.check_output([redis_binary(), "--version"], text=True).split()
    return {
        "doorstep": version("doorstep"),
        **rivals,
        "redis": next(word for word in redis if word.startswith("v="))[2:],
    }
