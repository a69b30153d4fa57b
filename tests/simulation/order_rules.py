"""The rule of ordering keys, for one line: nobody is tried before all that were accepted before it have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from doorstep.model.delivery import DEAD_STATES, OPEN_STATES, DeliveryState
from tests.simulation.journal import Step
from tests.simulation.trace import short


def breaches_of_order(steps: Sequence[Step]) -> Iterator[str]:
    """What the verbs did to the deliveries of one endpoint and ordering key that the rule does not allow.

    A dead letter that an operator retries has lost its place: it may be overtaken, and may overtake.
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
    """Those of the line that were accepted before this one and have not ended; the states are kept in that order."""
    for delivery_id, state in states.items():
        if delivery_id == until:
            return
        if state in OPEN_STATES and delivery_id not in retried:
            yield delivery_id
