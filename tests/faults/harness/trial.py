"""A trial: send load while the nemesis injects faults, then heal, drain and check."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.faults.harness.checker import Verdict, check
from tests.faults.harness.databases import Hurt, open_deliveries, read_final_state
from tests.faults.harness.evidence import Evidence, Fault, read_arrivals, read_ledger
from tests.faults.harness.installation import ADMIN_KEY, CONCURRENCY, Installation, Reply, await_condition
from tests.faults.harness.ledger import Log
from tests.faults.harness.nemesis import Nemesis
from tests.faults.harness.processes import KeptProcess
from tests.support.patience import PATIENCE_SECONDS

_SETTLES_LOST_WITH_POSTGRES = 600
"""Settlements are committed without waiting for the disk: a crash of PostgreSQL can lose the last 0.6 s of them."""


def start_ledger(
    installation: Installation, types: str, *, rate: float = 100, seed: int = 1, count: int | None = None
) -> KeptProcess:
    """Start sending; `types` are event types with weights, for example plain=8,fan=2."""
    command = [sys.executable, "-m", "tests.faults.harness.ledger", str(ledger_path(installation))]
    command += [str(installation.port), ADMIN_KEY, types, "--rate", str(rate), "--seed", str(seed)]
    command += [] if count is None else ["--count", str(count)]
    ledger = KeptProcess("ledger", command, installation.environment, installation.folder, revived=False)
    return installation.keeper.keep(ledger)


def ledger_path(installation: Installation) -> Path:
    return installation.folder / "ledger.jsonl"


def send_noted(installation: Installation, event_type: str, **options: object) -> Reply:
    """Send one event by hand, and record it in the ledger like any other."""
    log, number, payload = Log(str(ledger_path(installation))), time.time_ns(), {"sent by hand": time.time_ns()}
    digest = hashlib.sha256(json.dumps(payload).encode()).hexdigest()
    log.write(line="tried", request=number, events=[[digest, event_type, None]])
    event = {"event_type": event_type, "payload": payload, **options}
    reply = installation.ask_in_full("POST", "/v1/events", event)
    if reply.status == 202:
        log.write(line="acknowledged", request=number, event_ids=[reply.answer["event_id"]])
    return reply


def drain(installation: Installation, seconds_max: float = PATIENCE_SECONDS) -> float:
    """Wait until no delivery is open; return how long that took. The checker reports deliveries that are stuck."""
    started = time.monotonic()
    while open_deliveries(installation.database) and time.monotonic() - started < seconds_max:
        time.sleep(0.1)
    return time.monotonic() - started


def judge(installation: Installation, faults: Iterable[Fault] = (), in_flight_max: int | None = None) -> Verdict:
    """Collect the evidence of an idle installation, and check it against the promises.

    `in_flight_max` is for trials that know the maximum number of deliveries between arrival and settlement.
    """
    faults = list(faults)
    arrivals = read_arrivals(*installation.folder.glob("*.arrivals"))
    lost_settles = _SETTLES_LOST_WITH_POSTGRES if installation.database.name == "postgres" else 0
    return check(
        Evidence(
            ledger=read_ledger(ledger_path(installation)),
            arrivals=arrivals,
            state=read_final_state(installation.database),
            faults=faults,
            lease_seconds=installation.lease_seconds,
            in_flight_max=in_flight_max or CONCURRENCY * (1 + len(installation.workers)) + lost_settles,
        )
    )


@dataclass
class Trial:
    """The result of one trial."""

    verdict: Verdict
    seconds: float
    drain_seconds: float
    recovery_seconds: float
    exit_codes: dict[str, int]

    @property
    def clean(self) -> bool:
        return not self.verdict.violations and not any(self.exit_codes.values())

    def __str__(self) -> str:
        times = f"recovered in {self.recovery_seconds:.1f} s, drained in {self.drain_seconds:.1f} s"
        return f"N = {self.verdict.faults} faults in {self.seconds:.0f} s; {self.verdict}\n  {times}; exits {self.exit_codes}"


def run_trial(
    installation: Installation,
    faults: Mapping[str, Hurt],
    *,
    types: str = "plain=12,fan=4,hostile=1",
    seconds: float = 12,
    rate: float = 100,
    seed: int = 1,
    until: Callable[[], object] = lambda: True,
) -> Trial:
    """Apply load and faults for this many seconds to a running installation; then heal, drain and check.

    The load continues until the condition `until` holds, because a busy machine takes longer.
    """
    nemesis = Nemesis(faults, seed, installation.await_ready)
    ledger = start_ledger(installation, types, rate=rate, seed=seed)
    started = time.monotonic()
    nemesis.rage(seconds)
    installation.database.heal()
    recovery_seconds = installation.await_ready()
    await_condition(until, "enough to happen under load")
    ledger.stop()
    drain_seconds = drain(installation)
    exit_codes = installation.stop()
    verdict = judge(installation, nemesis.done)
    return Trial(verdict, time.monotonic() - started, drain_seconds, recovery_seconds, exit_codes)
