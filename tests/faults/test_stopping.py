"""SIGTERM during work: attempts in progress are finished or handed back, and the process exits normally."""

from __future__ import annotations

import os
import time

from tests.faults.conftest import Install
from tests.faults.harness.databases import Database
from tests.faults.harness.installation import CALM
from tests.faults.harness.occasion import in_time
from tests.faults.harness.trial import drain, judge, start_ledger

_GRACE_SECONDS = 5
_HELD = "SELECT count(*) FROM doorstep_deliveries WHERE state = 'in_progress'"
_ROUNDS = 10 if os.environ.get("TORTURE") else 2


def test_sigterm_under_load_drains_within_the_grace_period_and_leaves_nothing_in_progress(
    install: Install, database: Database
) -> None:
    installation = install(database, settings={**CALM, "DOORSTEP_GRACE_SECONDS": str(_GRACE_SECONDS)})
    installation.receive("ok", "slow")
    installation.serve(workers=1)
    installation.enrol("plain", "steady")
    ledger = start_ledger(installation, "plain=1,steady=1", rate=200)
    seconds, codes, held = [], [], []
    for _ in range(_ROUNDS):
        time.sleep(2)
        started = time.monotonic()
        codes.append(installation.server.stop())
        seconds.append(time.monotonic() - started)
        held.append(database.rows(_HELD)[0][0])
        installation.server.start()
        installation.await_ready()
    ledger.stop()
    drain(installation)
    installation.stop()
    verdict = judge(installation)
    print(f"\nSIGTERM on {database.name}: N = {_ROUNDS}, exits {codes} after {max(seconds):.2f} s at most; {verdict}")
    assert codes == [0] * _ROUNDS
    assert held == [0] * _ROUNDS
    assert verdict.violations == [], str(verdict)
    assert verdict.duplicates == 0
    in_time(max(seconds) - _GRACE_SECONDS, 3)
