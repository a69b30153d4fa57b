"""A submission: an event on its way in, with everything it owes; and the receipt for it."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.delivery import NewDelivery
from doorstep.model.event import Event
from doorstep.model.noun import Noun


class Submission(Noun, frozen=True):
    """What is accepted as one: an event and its deliveries."""

    event: Event
    deliveries: tuple[NewDelivery, ...]
    """One per matching endpoint; none means that the event waits in the inbox."""
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    """A digest of everything the sender gave: tells a repeated request from another one under the same key."""


class Verdict(StrEnum):
    """Whether an event was stored, and if not, why."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """Same organization, key and body as before: the first receipt again, nothing new."""
    CONFLICT = "conflict"
    """Same key, another body: nothing was stored."""


class Receipt(Noun, frozen=True):
    """What a sender is told of an event that it sent."""

    verdict: Verdict
    event_id: UUID
    created_at: Instant
    deliveries: int
    known: bool = False
    """An event with this id had been kept before, so nothing was added."""
