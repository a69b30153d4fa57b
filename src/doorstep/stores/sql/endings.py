"""What the results of a batch add up to for each event, before its row is brought up to date."""

from __future__ import annotations

from collections.abc import Iterable

from doorstep.model.claim import Claim, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus


class Ending:
    """How many deliveries of one event came to their end, and how."""

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
        """The event has no open delivery left; what it was before is queued, because one of them was in progress."""
        claim, new = self.claim, EventStatus(status)
        return StatusChange(
            claim.event_id, claim.org_id, claim.correlation_id, EventStatus.QUEUED, new, self.retry_attempts
        )


def endings_of(settlements: Iterable[Settlement]) -> dict[object, Ending]:
    """By the key of the event. A retry leaves its event as it is."""
    endings: dict[object, Ending] = {}
    for settlement in settlements:
        if settlement.state is not DeliveryState.PENDING:
            claim = settlement.claim
            ending = endings.get(claim.event_key)
            if ending is None:
                ending = endings[claim.event_key] = Ending(claim)
            ending.add(settlement)
    return endings
