"""Creates dead letters and bulk operations on them, and checks what must be true when an operation ends."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.faults.harness.databases import read_final_state
from tests.faults.harness.evidence import Arrival, read_arrivals
from tests.faults.harness.installation import ADMIN_KEY, Installation, await_condition
from tests.faults.harness.ledger import Draft, Log, Sender
from tests.faults.harness.receiver import MENDED
from tests.faults.harness.trial import ledger_path
from tests.support.patience import PATIENCE_SECONDS

_BATCH = 500
_END_SECONDS_MAX = 5 * PATIENCE_SECONDS if os.environ.get("TORTURE") else PATIENCE_SECONDS
_DEAD = "SELECT count(*) FROM doorstep_deliveries WHERE state = 'dead'"


def bury(installation: Installation, count: int) -> None:
    """Send events to a receiver that permanently rejects them, then repair the receiver."""
    sender = Sender(installation.port, ADMIN_KEY, Log(str(ledger_path(installation))))
    for first in range(0, count, _BATCH):
        numbers = range(first, min(count, first + _BATCH))
        sender.send(first, [Draft("letter", f'{{"letter": {number}}}', None) for number in numbers], batch=True)
    await_condition(lambda: installation.database.rows(_DEAD)[0][0] == count, f"{count} dead letters", _END_SECONDS_MAX)
    (installation.folder / MENDED).touch()


class Operation:
    """A bulk retry of all dead letters, as an API client sees it."""

    def __init__(self, installation: Installation, **options: object) -> None:
        self._installation = installation
        status, bulk = installation.ask("POST", "/v1/dead-letters/bulk-retry", {"all": True, **options})
        assert status == 202, bulk
        self.bulk_id = str(bulk["bulk_id"])

    def seen(self) -> Any:
        status, bulk = self._installation.ask("GET", f"/v1/bulk/{self.bulk_id}")
        assert status == 200, bulk
        return bulk

    def steer(self, verb: str) -> Any:
        status, bulk = self._installation.ask("POST", f"/v1/bulk/{self.bulk_id}/{verb}")
        assert status == 200, bulk
        return bulk

    def await_taken(self, count: int) -> None:
        await_condition(lambda: self.seen()["taken"] >= count, f"{count} letters to be taken", _END_SECONDS_MAX)

    def await_end(self) -> Any:
        await_condition(lambda: self.seen()["finished_at"], "the end of the operation", _END_SECONDS_MAX)
        return self.seen()


@dataclass(frozen=True)
class BulkEvidence:
    """Everything known when an operation has ended: its own report, the database, and the receiver's log."""

    bulk: Any
    letters: dict[int, tuple[str, str]]
    """Event id and state of each delivery, by row."""
    retried: Counter[int]
    """How many history entries of each delivery show a retry by this operation."""
    results: dict[int, bool | None]
    """The result that the operation recorded for each letter that it took."""
    failed: frozenset[int]
    """Letters with a failed attempt after their first one."""
    arrivals: list[Arrival]


def bulk_evidence(installation: Installation, operation: Operation) -> BulkEvidence:
    database, state = installation.database, read_final_state(installation.database)
    return BulkEvidence(
        bulk=operation.seen(),
        letters={delivery.row: (delivery.event_id, delivery.state) for delivery in state.deliveries},
        retried=Counter(row for (row,) in database.rows(_RETRIED.format(bulk_id=operation.bulk_id))),
        results={row: None if well is None else bool(well) for row, well in database.rows(_RESULTS)},
        failed=frozenset(attempt.row for attempt in state.attempts if attempt.number > 1 and attempt.code),
        arrivals=read_arrivals(*installation.folder.glob("*.arrivals")),
    )


_RETRIED = "SELECT delivery_id FROM doorstep_history WHERE note LIKE 'retried by %{bulk_id}%'"
_RESULTS = "SELECT delivery_id, succeeded FROM doorstep_bulk_items"


def violations(evidence: BulkEvidence) -> list[str]:
    """Everything that violates the promises about bulk operations."""
    return [*_not_once(evidence), *_miscounted(evidence), *_misjudged(evidence), *_not_received(evidence)]


def _not_once(evidence: BulkEvidence) -> Iterator[str]:
    """Check that each letter was retried once. Letters that a cancelled operation left out must still be dead."""
    for row, (_, state) in evidence.letters.items():
        times = evidence.retried[row]
        if times > 1 or (times == 0 and evidence.bulk["state"] == "finished"):
            yield f"letter {row} was retried {times} times"
        if times == 0 and state != "dead":
            yield f"letter {row} was not retried and is {state}"


def _miscounted(evidence: BulkEvidence) -> Iterator[str]:
    results = Counter(evidence.results.values())
    counted = {
        "total": len(evidence.letters),
        "taken": len(evidence.retried),
        "refused": 0,
        "succeeded": results[True],
        "failed": results[False],
        "in_flight": results[None] if evidence.bulk["state"] == "cancelled" else 0,  # nobody waits for these
    }
    for name, count in counted.items():
        if evidence.bulk[name] != count:
            yield f"{name} is {evidence.bulk[name]}, counted {count}"
    if evidence.results.keys() != evidence.retried.keys():
        yield f"{len(evidence.retried)} letters were retried, results are kept of {len(evidence.results)}"


def _misjudged(evidence: BulkEvidence) -> Iterator[str]:
    """A letter counts as failed if a worker was killed while trying it, even if it is delivered later."""
    for row, well in evidence.results.items():
        if well and evidence.letters[row][1] != "delivered":
            yield f"letter {row} counts as delivered and is {evidence.letters[row][1]}"
        if well is False and row not in evidence.failed:
            yield f"letter {row} counts as failed, but no attempt failed"


def _not_received(evidence: BulkEvidence) -> Iterator[str]:
    thanked = {arrival.event_id for arrival in evidence.arrivals if arrival.answer == 200}
    for row, (event_id, _) in evidence.letters.items():
        if (event_id in thanked) != (row in evidence.retried):
            yield f"letter {row} was retried {evidence.retried[row]} times, received: {event_id in thanked}"
