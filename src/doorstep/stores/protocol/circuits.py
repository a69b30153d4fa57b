"""Circuits: whether an endpoint is tried at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from doorstep.model.circuit import Circuit, CircuitChange, CircuitState


class CircuitStore(Protocol):
    """An endpoint that has never failed has no row: its circuit is closed and of version 0."""

    async def circuit(self, endpoint_id: UUID) -> Circuit:
        """The stored circuit, or a closed one of version 0."""

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        """Write a circuit computed from `expected_version` (stored as version + 1); False if another was faster.

        A change of state is added to the circuit's history with `reason`, at the circuit's `changed_at`.
        """

    async def circuit_history(self, endpoint_id: UUID, limit: int | None = None) -> list[CircuitChange]:
        """The changes of state, oldest first; only the newest `limit` of them, if that is given."""

    async def circuits(self, org_id: UUID | None, endpoint_ids: Sequence[UUID]) -> dict[UUID, Circuit]:
        """The stored circuits of those of these endpoints that have one: of an organization, or of any."""

    async def circuit_counts(self, org_id: UUID | None = None) -> dict[CircuitState, int]:
        """How many endpoints that are not deleted have a circuit in each state, zeros too: of one organization, or of
        all together but for the reserved one."""
