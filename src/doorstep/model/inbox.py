"""The inbox: events without endpoints, which consumers lease, process and then acknowledge or give back.

A lease hides an event from other consumers until it ends. It does not change the event's status: a leased event is
still `received`, and stays in the list of the inbox.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.claim import StatusChange
from doorstep.model.event import EventStatus
from doorstep.model.record import Record


class InboxAnswer(Record, frozen=True):
    """The answer of a consumer: an acknowledgement, or with `visible_at` a negative one (a nack)."""

    event_id: UUID
    token: int | None = None
    """The token of the consumer's lease. Without it, the answer applies regardless of who holds a lease."""
    visible_at: Instant | None = None
    """When the event may be leased again."""
    user_id: str | None = None
    """The user who answers; the event is then found only if this user owns it."""


class InboxResult(StrEnum):
    ACKNOWLEDGED = "acknowledged"
    NACKED = "nacked"
    ALREADY_ACKNOWLEDGED = "already_acknowledged"
    """A nack came after the acknowledgement, and changes nothing."""
    NEWER_LEASE = "newer_lease"
    """The event was leased again after the lease of the answer had ended."""
    NOT_IN_INBOX = "not_in_inbox"
    """Endpoints receive the event."""
    NOT_FOUND = "not_found"


class InboxAnswered(Record, frozen=True):
    """What became of each answer."""

    results: dict[UUID, InboxResult]
    changes: tuple[StatusChange, ...] = ()

    @property
    def done(self) -> tuple[UUID, ...]:
        """The events whose answers were accepted, including those that were acknowledged before."""
        accepted = (InboxResult.ACKNOWLEDGED, InboxResult.NACKED)
        return tuple(event_id for event_id, result in self.results.items() if result in accepted)


def inbox_result(
    answer: InboxAnswer, status: EventStatus, deliveries: int, receive_count: int, owner: str | None
) -> InboxResult:
    """What becomes of an answer. `receive_count` is the token of the newest lease, because each lease increases it.
    `owner` is the user who owns the event."""
    if answer.user_id not in (None, owner):
        return InboxResult.NOT_FOUND
    if deliveries:
        return InboxResult.NOT_IN_INBOX
    if answer.token not in (None, receive_count):
        return InboxResult.NEWER_LEASE
    if answer.visible_at is None:
        return InboxResult.ACKNOWLEDGED
    return InboxResult.ALREADY_ACKNOWLEDGED if status is EventStatus.DELIVERED else InboxResult.NACKED
