"""The rule of ordering keys, for one group: a delivery is attempted after all earlier accepted ones have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from doorstep.model.delivery import DEAD_STATES, OPEN_STATES, DeliveryState
from tests.simulation.journal import Step
from tests.simulation.trace import short


def breaches_of_order(steps: Sequence[Step]) -> Iterator[str]:
    """Yield every violation of the rule in the deliveries of one endpoint and ordering key.

    A dead letter that an operator retries loses its place: it may be overtaken, and may overtake others.
    """
    states: dict[UUID, DeliveryState] = {}
    retried: set[UUID] = set()
    for step in steps:
        assert step.after is not None
        if step.verb == "claim" and step.delivery_id not in retried:
            for earlier in _still_open(states, step.delivery_id, retried):
                yield f"{short(step.delivery_id)} was claimed when {short(earlier)}, accepted before it, had not ended"
        if step.before and step.before.state in DEAD_STATES and step.after.state is DeliveryState.PENDING:
            retried.add(step.delivery_id)
        states[step.delivery_id] = step.after.state


def _still_open(states: dict[UUID, DeliveryState], until: UUID, retried: set[UUID]) -> Iterator[UUID]:
    """Unfinished deliveries of the group that were accepted before this one. `states` is in acceptance order."""
    for delivery_id, state in states.items():
        if delivery_id == until:
            return
        if state in OPEN_STATES and delivery_id not in retried:
            yield delivery_id
