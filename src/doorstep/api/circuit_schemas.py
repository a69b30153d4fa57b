"""The shape of an endpoint's circuit and its history."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from doorstep.api.schemas import Shape, Timestamp, iso
from doorstep.clock import to_iso
from doorstep.model.circuit import Circuit, CircuitChange, CircuitState

CircuitStateName = Literal["closed", "open", "half_open"]


class CircuitChangeOut(Shape):
    at: Timestamp
    old_state: CircuitStateName
    new_state: CircuitStateName
    reason: str


class CircuitOut(Shape):
    """What is remembered of an endpoint's failures. While it is open, its deliveries wait and use up no attempts."""

    endpoint_id: UUID
    state: CircuitStateName
    failures: int
    """In a row, up to now."""
    failing_since: Timestamp | None
    until: Timestamp | None
    """Open: when one delivery may go as a probe. Half-open: when the probe counts as lost."""
    history: list[CircuitChangeOut]

    @classmethod
    def of(cls, circuit: Circuit, changes: list[CircuitChange]) -> CircuitOut:
        return cls(
            endpoint_id=circuit.endpoint_id,
            state=circuit.state.value,
            failures=circuit.failures,
            failing_since=iso(circuit.failing_since),
            until=None if circuit.state is CircuitState.CLOSED else iso(circuit.until),
            history=[_change_out(change) for change in changes],
        )


def _change_out(change: CircuitChange) -> CircuitChangeOut:
    return CircuitChangeOut(
        at=to_iso(change.at),
        old_state=change.old_state.value,
        new_state=change.new_state.value,
        reason=change.reason,
    )
