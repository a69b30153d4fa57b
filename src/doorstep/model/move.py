"""A move: one change of a delivery's state outside the path of a try, made by an operator or a service."""

from __future__ import annotations

from uuid import UUID

from doorstep.model.delivery import DeliveryState
from doorstep.model.noun import Noun
from doorstep.model.settlement import StatusChange


class Move(Noun, frozen=True, kw_only=True):
    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    org_id: UUID
    correlation_id: str
    old_state: DeliveryState
    new_state: DeliveryState
    attempt: int


class Moved(Noun, frozen=True):
    """What one write did to deliveries, and which events changed their status with them."""

    moves: tuple[Move, ...] = ()
    changes: tuple[StatusChange, ...] = ()

    @property
    def delivery_ids(self) -> tuple[UUID, ...]:
        return tuple(move.delivery_id for move in self.moves)
