"""A receiver is down while tens of thousands of deliveries accumulate. When it returns, it is not overloaded."""

from __future__ import annotations

import time

from tests.faults.conftest import Install
from tests.faults.harness.databases import Database, open_deliveries
from tests.faults.harness.evidence import Arrival, read_arrivals
from tests.faults.harness.installation import Installation
from tests.faults.harness.trial import drain

_WAITING = 20_000
_BATCH = 1_000


def send_backlog(installation: Installation) -> None:
    for start in range(0, _WAITING, _BATCH):
        events = [{"event_type": "backlog", "payload": {"n": n}} for n in range(start, start + _BATCH)]
        status, answer = installation.ask("POST", "/v1/events/batch", {"events": events})
        assert status == 202, answer


def under_way_by_step(arrivals: list[Arrival]) -> list[int]:
    """The most requests that the receiver held at the same time, for each quarter of a second since the first one."""
    first = arrivals[0].at
    peaks: dict[int, int] = {}
    for arrival in arrivals:
        step = int(4 * (arrival.at - first))
        peaks[step] = max(peaks.get(step, 0), arrival.under_way)
    return [peaks.get(step, 0) for step in range(max(peaks) + 1)]


def test_a_receiver_that_recovers_with_20000_waiting_is_ramped_up_and_gets_them_all(
    install: Install, database: Database
) -> None:
    installation = install(database)
    installation.serve()
    installation.enrol("backlog")
    send_backlog(installation)
    time.sleep(3)
    dead_before = database.rows("SELECT count(*) FROM doorstep_deliveries WHERE state = 'dead'")[0][0]
    installation.receive("recovering")
    seconds = drain(installation)
    arrivals = read_arrivals(installation.folder / "receiver-1.arrivals")
    peaks = under_way_by_step(arrivals)
    delivered = len({arrival.event_id for arrival in arrivals})
    print(
        f"\nrecovery on {database.name}: N = {_WAITING}; drained in {seconds:.1f} s; at once by quarter: {peaks[:40]}"
    )
    assert open_deliveries(database) == 0
    assert delivered == len(arrivals) == _WAITING - dead_before
    assert all(peak <= 2 ** (step + 1) for step, peak in enumerate(peaks)), peaks
