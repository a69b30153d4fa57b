"""What a store keeps of a death beside its state: the cause, computed from the very words that are stored."""

from __future__ import annotations

from doorstep.model.claim import Settlement
from doorstep.model.delivery import DeliveryState, cause_of
from doorstep.stores.text import storable


def cause_in(settlement: Settlement) -> int | None:
    """The cause of a delivery that this settlement makes a dead letter; None where it does not."""
    if settlement.state is not DeliveryState.DEAD:
        return None
    outcome = settlement.outcome
    return cause_of(settlement.claim.endpoint_id, storable(outcome.code or ""), storable(outcome.reason))
