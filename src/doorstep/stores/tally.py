"""What one write adds to the figures of model/rollup.py: the one place that says which change counts as what.

Organizations and endpoints are named as the store does it inside. What belongs to events is counted under the endpoint
OF_EVENTS. Claims and releases change no figure of an endpoint: a delivery that is tried is as open as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from doorstep.clock import MILLISECOND, Instant
from doorstep.model.attempt import Code
from doorstep.model.claim import Settlement, StatusChange
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus
from doorstep.model.rollup import retries_figure, ttd_figure

OF_EVENTS = 0
"""The endpoint of what belongs to events."""
EVERY = 0
"""The organization and the endpoint of what is summed up over all of them."""
Owner = tuple[Any, Any]
"""An organization and an endpoint."""

_LEVELS = {
    DeliveryState.PENDING: "now_open",
    DeliveryState.IN_PROGRESS: "now_open",
    DeliveryState.DEAD: "now_dead",
    DeliveryState.ARCHIVED: "now_archived",
}
_RESULTS = {DeliveryState.DELIVERED: "succeeded", DeliveryState.PENDING: "retried", DeliveryState.DEAD: "died"}


class Tally:
    """Figures by their owners. Empty ones are left out, so a tally that changes nothing has no rows."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[Owner, dict[str, int]] = {}

    def add(self, owner: Owner, figure: str, number: int = 1) -> None:
        if number:
            row = self.rows.setdefault(owner, {})
            row[figure] = row.get(figure, 0) + number

    def accepted(self, org: object, events: int) -> None:
        """So many new events of an organization."""
        self.add((org, OF_EVENTS), "created", events)
        self.add((org, OF_EVENTS), "now_received", events)

    def owed(self, owner: Owner, deliveries: int) -> None:
        """So many new deliveries to an endpoint."""
        self.add(owner, "deliveries", deliveries)
        self.add(owner, "now_open", deliveries)

    def status(
        self, org: object, old: EventStatus, new: EventStatus | None, events: int = 1, *, called_off: bool = False
    ) -> None:
        """So many events that change their status; None is that of those that leave. Those without a dead letter were
        `called_off` by an operator: their status is failed, but nothing has failed."""
        owner = (org, OF_EVENTS)
        self.add(owner, f"now_{old}", -events)
        if new is not None:
            self.add(owner, f"now_{new}", events)
        if new is EventStatus.DELIVERED or (new is EventStatus.FAILED and not called_off):
            self.add(owner, new.value, events)

    def statuses(self, changes: Iterable[tuple[object, StatusChange]]) -> None:
        """The same for changes that tries or acknowledgements made, each with its organization."""
        for org, change in changes:
            assert change.old_status is not None, "only an acceptance has none"
            self.status(org, change.old_status, change.new_status)

    def moved(self, owner: Owner, old: DeliveryState, new: DeliveryState | None) -> None:
        """A delivery that changes its state without a try; None is that of a dead letter that is deleted."""
        before, after = _LEVELS.get(old), new and _LEVELS.get(new)
        if before == after:
            return
        if before is not None:
            self.add(owner, before, -1)
        if after is not None:
            self.add(owner, after)
        if new is DeliveryState.DEAD:
            self.add(owner, "dead")

    def settled(self, ended: Iterable[tuple[Owner, Settlement]], now: Instant) -> None:
        """Claims that end with a try. Written out, because it is done for every try: 0.9 µs each."""
        for owner, settlement in ended:
            row, claim, state = self.rows.setdefault(owner, {}), settlement.claim, settlement.state
            result = _RESULTS[state]
            row[result] = row.get(result, 0) + 1
            if settlement.outcome.code == Code.BLOCKED:
                row["blocked"] = row.get("blocked", 0) + 1
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
