"""Work on many deliveries at once."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from doorstep.client.answers.answer import Answered


class Canary(Answered, frozen=True, kw_only=True):
    """The one of its cause that was tried first."""

    cause: str
    delivery_id: UUID
    succeeded: bool | None


class Bulk(Answered, frozen=True, kw_only=True):
    """A bulk operation and how far it is."""

    bulk_id: UUID
    kind: str
    state: Literal["running", "paused", "cancelled", "finished"]
    actor: str
    reason: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    endpoint_id: UUID | None
    """Where a replay goes."""
    total: int
    total_is_floor: bool
    taken: int
    refused: int
    succeeded: int
    failed: int
    in_flight: int
    rate_per_second: float | None
    canary: bool
    canaries: tuple[Canary, ...] | None
    note: str
    progress: str
    """`3/5 succeeded, 2 failed`."""

    @property
    def ended(self) -> bool:
        return self.state in ("cancelled", "finished")


class EndpointCount(Answered, frozen=True, kw_only=True):
    """How many of the selected deliveries go to one endpoint."""

    endpoint_id: UUID
    endpoint_name: str
    count: int


class Preview(Answered, frozen=True, kw_only=True):
    """What a bulk operation would be about; nothing has been done."""

    count: int
    count_is_floor: bool
    endpoints: tuple[EndpointCount, ...]
