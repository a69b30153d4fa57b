"""A payload kills every worker that handles it: it ends as a dead letter, and its neighbours are delivered."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.broken import program
from tests.faults.conftest import Install
from tests.faults.harness.databases import Database, SqliteDatabase
from tests.faults.harness.evidence import read_arrivals
from tests.faults.harness.installation import Installation, await_condition
from tests.faults.harness.trial import drain
from tests.faults.poison_app import POISON

_RETRIES = 3
"""As many retries as the default policy has. With fewer, an unlucky neighbour could become a dead letter too."""
_NEIGHBOURS = 50
_STATES = """
SELECT e.payload, d.state, d.attempt
FROM doorstep_deliveries d JOIN doorstep_events e ON e.id = d.event_id
"""


def poison_one_of_many(installation: Installation) -> None:
    """Send one poison event among harmless ones, all for a handler that runs in two workers but not in the server."""
    installation.serve()
    installation.enrol("handled")
    names = [f"harmless {number}" for number in range(_NEIGHBOURS)]
    names.insert(_NEIGHBOURS // 2, POISON)
    events = [{"event_type": "handled", "payload": {"name": name}} for name in names]
    assert installation.ask("POST", "/v1/events/batch", {"events": events})[0] == 202
    for _ in range(2):
        installation.add_worker("--app", "tests.faults.poison_app:doorstep")


def touches(installation: Installation) -> int:
    """How often a worker got the poison."""
    arrivals = read_arrivals(*installation.folder.glob("handler-*.arrivals"))
    return sum(1 for arrival in arrivals if arrival.answer is None)


SETTINGS = {"DOORSTEP_RETRY_DELAYS": ",".join(["0.2"] * _RETRIES)}


def test_a_payload_that_kills_its_worker_is_a_dead_letter_after_its_policys_attempts_and_spares_its_neighbours(
    install: Install, database: Database
) -> None:
    installation = install(database, settings=SETTINGS)
    poison_one_of_many(installation)
    drain(installation)
    rows = [(POISON.encode() in payload, state, attempt) for payload, state, attempt in database.rows(_STATES)]
    neighbours = Counter(state for poisonous, state, _ in rows if not poisonous)
    print(f"\npoison on {database.name}: touched {touches(installation)} times; neighbours {dict(neighbours)}")
    assert [row[1:] for row in rows if row[0]] == [("dead", _RETRIES + 1)]
    assert touches(installation) == _RETRIES + 1
    assert neighbours == {"delivered": _NEIGHBOURS}


@pytest.mark.full
def test_the_harness_catches_attempts_that_are_counted_only_when_settled(
    install: Install, sqlite_database: SqliteDatabase
) -> None:
    settings = {"DOORSTEP_RETRY_DELAYS": "0.2"}
    installation = install(sqlite_database, settings=settings, program=program("count-attempts-at-settle"))
    poison_one_of_many(installation)
    seconds = await_condition(lambda: touches(installation) > 2, "the poison to be touched too often")
    print(f"\ncount at settle: touched {touches(installation)} times after {seconds:.0f} s")
