"""Computes how one write changes the counters (model/rollup.py) and the delivery counts of events. Also splits a range
of time into the roll-ups that cover it.

Only this module decides which figures a change affects. Organizations and endpoints are identified by the store's
internal keys. Counters of events belong to no endpoint; their endpoint key is OF_EVENTS. Claims and releases do not
change the counters of an endpoint, because a delivery in progress is still open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from doorstep.clock import DAY, MILLISECOND, Instant
from doorstep.model.attempt import UNREACHED, Code
from doorstep.model.claim import Claim, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.rollup import FINE_RANGE, HOUR, MINUTE, Span, response_figure, retries_figure, ttd_figure

OF_EVENTS = 0
"""The endpoint key in counters of events."""
EVERY = 0
"""The key that stands for all organizations, or for all endpoints, in sums."""
Owner = tuple[Any, Any]
"""The keys of an organization and an endpoint."""

_LEVELS = {
    DeliveryState.PENDING: "now_open",
    DeliveryState.IN_PROGRESS: "now_open",
    DeliveryState.DEAD: "now_dead",
    DeliveryState.ARCHIVED: "now_archived",
}
_RESULTS = {DeliveryState.DELIVERED: "succeeded", DeliveryState.PENDING: "retried", DeliveryState.DEAD: "died"}


class Tally:
    """The changes to figures, by owner. Owners without changes have no row."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[Owner, dict[str, int]] = {}

    def add(self, owner: Owner, figure: str, number: int = 1) -> None:
        if number:
            row = self.rows.setdefault(owner, {})
            row[figure] = row.get(figure, 0) + number

    def accepted(self, org: object, events: int) -> None:
        """Count new events of an organization."""
        self.add((org, OF_EVENTS), "created", events)
        self.add((org, OF_EVENTS), "now_received", events)

    def owed(self, owner: Owner, deliveries: int) -> None:
        """Count new deliveries to an endpoint."""
        self.add(owner, "deliveries", deliveries)
        self.add(owner, "now_open", deliveries)

    def status(
        self, org: object, old: EventStatus, new: EventStatus | None, events: int = 1, *, called_off: bool = False
    ) -> None:
        """Count events that change status; `new` is None for removed events. `called_off` means that an operator ended
        them without a dead letter: their status is failed, but the figure `failed` does not include them."""
        owner = (org, OF_EVENTS)
        self.add(owner, f"now_{old}", -events)
        if new is not None:
            self.add(owner, f"now_{new}", events)
        if new is EventStatus.DELIVERED or (new is EventStatus.FAILED and not called_off):
            self.add(owner, new.value, events)

    def statuses(self, changes: Iterable[tuple[object, StatusChange]]) -> None:
        """Count status changes made by attempts or acknowledgements, given as pairs of an organization and a change."""
        for org, change in changes:
            assert change.old_status is not None, "only an acceptance has none"
            self.status(org, change.old_status, change.new_status)

    def moved(self, owner: Owner, old: DeliveryState, new: DeliveryState | None) -> None:
        """Count a delivery that changes state without an attempt; `new` is None for a deleted dead letter."""
        before, after = _LEVELS.get(old), new and _LEVELS.get(new)
        if before == after:
            return
        if before is not None:
            self.add(owner, before, -1)
        if after is not None:
            self.add(owner, after)
        if new is DeliveryState.DEAD:
            self.add(owner, "dead")

    def settled(self, settlements: Iterable[tuple[Owner, Settlement]], now: Instant) -> None:
        """Count claims that end with an attempt. The code is inlined, because it runs for every attempt (1.0 µs
        each)."""
        for owner, settlement in settlements:
            row, claim, state = self.rows.setdefault(owner, {}), settlement.claim, settlement.state
            outcome = settlement.outcome
            result = _RESULTS[state]
            row[result] = row.get(result, 0) + 1
            if outcome.code == Code.BLOCKED:
                row["blocked"] = row.get("blocked", 0) + 1
            if outcome.code not in UNREACHED:
                reply = outcome.reply
                took = max(reply.finished_at - reply.started_at, 0)
                bucket = response_figure(took)
                row[bucket] = row.get(bucket, 0) + 1
                row["response_us"] = row.get("response_us", 0) + took
            if state is DeliveryState.PENDING:
                continue
            row["now_open"] = row.get("now_open", 0) - 1
            used = retries_figure(min(claim.retry_attempts, settlement.retries_max))
            row[used] = row.get(used, 0) + 1
            if state is DeliveryState.DELIVERED:
                span = max(now - claim.owed_at, 0)
                bucket = ttd_figure(span)
                row[bucket] = row.get(bucket, 0) + 1
                row["ttd_ms"] = row.get("ttd_ms", 0) + (span + MILLISECOND // 2) // MILLISECOND
            else:
                row["dead"] = row.get("dead", 0) + 1
                row["now_dead"] = row.get("now_dead", 0) + 1


def settlement_tally(
    owners: Mapping[UUID, Owner],
    valid: Collection[Settlement],
    late: Iterable[Settlement],
    changes: Iterable[StatusChange],
    now: Instant,
) -> Tally:
    """The counter changes that settlements cause. `owners` maps the id of each endpoint to the owner of its
    counters."""
    tally = Tally()
    tally.settled(((owners[one.claim.endpoint_id], one) for one in valid), now)
    for settlement in late:
        tally.add(owners[settlement.claim.endpoint_id], "late")
    orgs = {one.claim.org_id: owners[one.claim.endpoint_id][0] for one in valid}
    tally.statuses((orgs[change.org_id], change) for change in changes)
    return tally


# -- the counts of an event --------------------------------------------------------------------------------


class EventTally:
    """The effect of a batch of settlements on one event: how many of its deliveries ended, by result, and the highest
    number of retries among these deliveries."""

    __slots__ = ("claim", "dead", "done", "retry_attempts")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.dead = self.done = self.retry_attempts = 0

    def add(self, settlement: Settlement) -> None:
        if settlement.state is DeliveryState.DELIVERED:
            self.done += 1
        else:
            self.dead += 1
        self.retry_attempts = max(self.retry_attempts, min(settlement.claim.retry_attempts, settlement.retries_max))

    def change_to(self, status: str) -> StatusChange:
        """The status change of an event that has no open deliveries left. Its old status is queued, because a delivery
        was in progress."""
        claim, new = self.claim, EventStatus(status)
        return StatusChange(
            claim.event_id,
            claim.org_id,
            claim.correlation_id,
            EventStatus.QUEUED,
            new,
            self.retry_attempts,
            claim.user_id,
        )


def tally_by_event(settlements: Iterable[Settlement]) -> dict[object, EventTally]:
    """The tally of each event, by the event's key. Settlements that lead to a retry are left out, because they do not
    change the event."""
    tallies: dict[object, EventTally] = {}
    for settlement in settlements:
        if settlement.state is not DeliveryState.PENDING:
            claim = settlement.claim
            tally = tallies.get(claim.event_key)
            if tally is None:
                tally = tallies[claim.event_key] = EventTally(claim)
            tally.add(settlement)
    return tallies


# -- rollups of a range ------------------------------------------------------------------------------------

Part = tuple[Span, Instant, Instant]
"""A span and two instants: the roll-ups of that span that start at or after the first instant and before the second."""

_UNITS = ((Span.DAY, DAY), (Span.HOUR, HOUR), (Span.MINUTE, MINUTE))


def rollup_parts(since: Instant, until: Instant) -> list[Part]:
    """Split a time range into whole days, the whole hours before and after these days, and the minutes before and after
    these hours. A range longer than FINE_RANGE is extended to whole hours and has no minutes."""
    unit = HOUR if until - since > FINE_RANGE else MINUTE
    return list(_parts(since - since % unit, until + -until % unit, _UNITS))


def _parts(start: Instant, end: Instant, units: Sequence[tuple[Span, Instant]]) -> Iterator[Part]:
    (span, length), *finer = units
    first, last = start + -start % length, end - end % length
    if first < last:
        yield from _parts(start, first, finer) if finer else ()
        yield span, first, last
        yield from _parts(last, end, finer) if finer else ()
    elif start < end:
        yield from _parts(start, end, finer)
