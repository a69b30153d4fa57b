"""The power fails at any point: everything that had been acknowledged is found again, complete."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.broken import program
from tests.faults.harness.occasion import enough
from tests.faults.harness.recording import Answered, Synced
from tests.faults.often import PROGRAM as OFTEN
from tests.faults.power import Cut, cut_power, record

_CUTS = 1_000 if os.environ.get("TORTURE") else 150
_REQUESTS = 150


def report(name: str, cuts: Sequence[Cut]) -> str:
    losing = sum(1 for cut in cuts if cut.lost)
    return f"\n{name}: N = {len(cuts)} cuts, acknowledged {len(cuts[-1].acknowledged)}, cuts that lost any: {losing}"


def test_no_acknowledged_event_is_lost_when_the_power_fails(tmp_path: Path) -> None:
    cuts = list(cut_power(record(tmp_path, requests=_REQUESTS), tmp_path, _CUTS))
    print(report("power loss", cuts))
    assert len(cuts[-1].acknowledged) >= _REQUESTS
    assert {cut.integrity for cut in cuts} == {"ok"}
    assert not any(cut.lost for cut in cuts)


@pytest.mark.full
def test_no_acknowledged_event_is_lost_when_the_power_fails_while_the_log_is_moved_into_the_file(
    tmp_path: Path,
) -> None:
    steps = record(tmp_path, requests=_REQUESTS, program=OFTEN)
    moved = sum(isinstance(step, Synced) and step.name == "doorstep.db" for step in steps)
    cuts = list(cut_power(steps, tmp_path, _CUTS))
    print(report(f"{moved} checkpoints, power loss", cuts))
    assert {cut.integrity for cut in cuts} == {"ok"}
    assert not any(cut.lost for cut in cuts)
    enough(moved > 20, f"{moved} checkpoints")


@pytest.mark.full
def test_no_acknowledged_event_is_lost_when_syncs_fail_and_then_the_power(tmp_path: Path) -> None:
    steps = record(tmp_path, requests=_REQUESTS, inject="fsync,fdatasync:error=EIO:when=50+10")
    failed = [index for index, step in enumerate(steps) if isinstance(step, Synced) and not step.succeeded]
    cuts = list(cut_power(steps, tmp_path, _CUTS))
    print(report(f"{len(failed)} failed syncs, then power loss", cuts))
    enough(len(failed) > 2, f"{len(failed)} failed syncs")
    assert any(isinstance(step, Answered) for step in steps[failed[-2] :]), "nothing was taken after a failed sync"
    assert {cut.integrity for cut in cuts} == {"ok"}
    assert not any(cut.lost for cut in cuts)


@pytest.mark.full
def test_the_harness_catches_commits_that_are_not_synced(tmp_path: Path) -> None:
    cuts = list(
        cut_power(record(tmp_path, requests=_REQUESTS, program=program("commit-without-sync")), tmp_path, _CUTS)
    )
    print(report("without sync", cuts))
    assert {cut.integrity for cut in cuts} == {"ok"}
    assert sum(1 for cut in cuts if cut.lost) > len(cuts) // 4
