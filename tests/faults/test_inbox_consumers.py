"""Consumers of the inbox, and the server, are killed over and over: each event is handled, and by one at a time."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.controls import until_caught
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.installation import ADMIN_KEY, Installation, await_condition
from tests.faults.harness.nemesis import Nemesis
from tests.faults.harness.processes import KeptProcess
from tests.faults.inbox_consumer import LEASE_SECONDS

_TRIAL_SECONDS = 60 if os.environ.get("TORTURE") else 0
_BATCH = 400
_CONSUMERS = 3


class Lease(NamedTuple):
    token: int
    ends_at: datetime

    @property
    def begins_at(self) -> datetime:
        return self.ends_at - timedelta(seconds=LEASE_SECONDS)


class Story:
    """What all consumers recorded."""

    def __init__(self, folder: Path) -> None:
        self.leases: dict[str, list[Lease]] = defaultdict(list)
        self.handled: set[str] = set()
        self.acknowledged: dict[str, int] = {}
        for path in sorted(folder.glob("*.journal")):
            for line in path.read_text().splitlines():
                what, event_id, token, ends_at = line.split(" ")
                if what == "leased":
                    self.leases[event_id].append(Lease(int(token), datetime.fromisoformat(ends_at)))
                elif what == "handled":
                    self.handled.add(event_id)
                elif what == "acknowledged":
                    self.acknowledged[event_id] = int(token)

    @property
    def repeated(self) -> int:
        """How many events were leased more than once."""
        return sum(len(leases) > 1 for leases in self.leases.values())

    def overlaps(self) -> list[str]:
        """Events that were leased again before their lease had ended, or after they had been acknowledged."""
        return [event_id for event_id, leases in self.leases.items() if self._overlap(event_id, sorted(leases))]

    def _overlap(self, event_id: str, leases: list[Lease]) -> bool:
        if any(
            later.token == earlier.token or later.begins_at < earlier.ends_at for earlier, later in pairwise(leases)
        ):
            return True
        return leases[-1].token > self.acknowledged.get(event_id, leases[-1].token)


def consume(installation: Installation) -> list[KeptProcess]:
    url = f"http://127.0.0.1:{installation.port}"
    return [_consumer(installation, url, f"consumer-{number}") for number in range(_CONSUMERS)]


def _consumer(installation: Installation, url: str, name: str) -> KeptProcess:
    command = [sys.executable, "-m", "tests.faults.inbox_consumer", url, ADMIN_KEY]
    journal = str(installation.folder / f"{name}.journal")
    process = KeptProcess(name, [*command, journal], installation.environment, installation.folder)
    return installation.keeper.keep(process)


def send(installation: Installation) -> list[str]:
    events = [{"event_type": "polled", "payload": number} for number in range(_BATCH)]
    status, answer = installation.ask("POST", "/v1/events/batch", {"events": events})
    assert status == 202, answer
    return [one["event_id"] for one in answer["events"]]


def until_empty(installation: Installation) -> None:
    def is_empty() -> bool:
        status, answer = installation.ask("GET", "/v1/inbox?limit=1")
        return status == 200 and answer["pagination"]["total_count"] == 0

    installation.await_ready()
    await_condition(is_empty, "an empty inbox")


def test_no_event_of_the_inbox_is_lost_or_doubled_within_a_lease_while_consumers_are_killed(
    install: Install, database: Database
) -> None:
    installation = install(database)
    installation.serve()
    sent = send(installation)
    consumers = consume(installation)
    await_condition(lambda: Story(installation.folder).handled, "the first handled event")
    nemesis = Nemesis(
        {f"kill {one.name}": _killing(one) for one in (*consumers, installation.server)}, 7, installation.await_ready
    )
    nemesis.rage(_TRIAL_SECONDS)
    sent += send(installation)
    until_empty(installation)
    story = Story(installation.folder)
    lost = set(sent) - story.handled
    print(
        f"\ninbox on {database.name}: N = {len(nemesis.done)} kills, {len(sent)} events, leased again"
        f" {story.repeated}, lost {len(lost)}, doubled within a lease {len(story.overlaps())}"
    )
    assert not lost and not story.overlaps()
    assert story.repeated, "a killed consumer leaves leased events behind"
    for event_id in sent[:: len(sent) // 20]:
        assert installation.ask("GET", f"/v1/events/{event_id}/status")[1]["status"] == "delivered"


@pytest.mark.full
def test_the_harness_catches_leases_that_do_not_hide_their_events(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    installation = install(sqlite_database, program=program("lease-to-everybody"))
    installation.serve()
    consume(installation)

    def play() -> list[str]:
        send(installation)
        until_empty(installation)
        return Story(installation.folder).overlaps()

    until_caught(play, lambda overlaps: overlaps)


def _killing(process: KeptProcess) -> Callable[[Random], None]:
    return lambda _: process.kill()
