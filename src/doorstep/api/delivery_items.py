"""The shapes of the retry queue and the dead letters, and of what is asked of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from doorstep.api.event_schemas import DeliveryOut
from doorstep.api.schemas import Asked, CountedPagination, Id, Moment, Pagination, Shape, Timestamp, iso
from doorstep.clock import Clock, seconds, to_iso
from doorstep.model.listing import CauseGroup, Letters, Queue
from doorstep.path.reading import Described

Pattern = Annotated[str, Field(max_length=200)]
"""An event type, or a pattern whose final `*` stands for any rest."""
Cause = Annotated[str, Field(pattern=r"^[0-7][0-9a-f]{15}$")]
"""What dead letters have in common, as the groups name it. A larger number fits no database column."""


class QueueFilter(Shape):
    """Which deliveries of the retry queue."""

    status: Literal["pending", "in_progress"] | None = None
    event_type: Pattern | None = None
    endpoint_id: Id | None = None
    older_than_seconds: float | None = Field(None, ge=0, le=10**9)
    """Only those that first failed longer ago."""

    def queue(self, clock: Clock) -> Queue:
        age = self.older_than_seconds
        return Queue(
            waiting=None if self.status is None else self.status == "pending",
            event_type=self.event_type,
            endpoint_id=self.endpoint_id,
            failed_before=None if age is None else clock.now() - seconds(age),
        )


class LettersFilter(Shape):
    """Which dead letters."""

    status: Literal["dead", "archived"] = "dead"
    event_type: Pattern | None = None
    endpoint_id: Id | None = None
    cause: Cause | None = None
    died_from: Moment | None = None
    died_before: Moment | None = None

    def letters(self) -> Letters:
        return Letters(
            archived=self.status == "archived",
            event_type=self.event_type,
            endpoint_id=self.endpoint_id,
            cause=None if self.cause is None else int(self.cause, 16),
            died_from=self.died_from,
            died_before=self.died_before,
        )


class QueueAsked(Asked, QueueFilter):
    model_config = Asked.model_config | {"strict": False}


class LettersAsked(Asked, LettersFilter):
    model_config = Asked.model_config | {"strict": False}


class DeliveryItem(DeliveryOut):
    """A delivery in a list, with what people want to know of it at a glance."""

    endpoint_name: str
    error: str | None
    """Why it failed last, as a stable code."""
    error_reason: str | None
    """The same as a sentence."""
    retry_count: str
    """Retries used and retries in all."""
    first_failed_at: Timestamp | None


class DeadLetterItem(DeliveryItem):
    cause: str | None


class QueueOut(Shape):
    deliveries: list[DeliveryItem]
    pagination: CountedPagination


class DeadLettersOut(Shape):
    dead_letters: list[DeadLetterItem]
    pagination: CountedPagination


class DeliveriesOut(Shape):
    deliveries: list[DeliveryItem]
    pagination: Pagination


class GroupOut(Shape):
    """Dead letters that died of the same: same endpoint, same code, same message but for its numbers and names."""

    cause: str
    endpoint_id: UUID
    endpoint_name: str
    error_code: str
    error_reason: str
    count: int
    count_is_floor: bool
    first_died_at: Timestamp
    last_died_at: Timestamp
    sample_delivery_id: UUID

    @classmethod
    def of(cls, group: CauseGroup, endpoint_name: str) -> GroupOut:
        return cls(
            cause=hexadecimal(group.cause),
            endpoint_id=group.endpoint_id,
            endpoint_name=endpoint_name,
            error_code=group.code,
            error_reason=group.reason,
            count=group.count.value,
            count_is_floor=not group.count.exact,
            first_died_at=to_iso(group.first_died_at),
            last_died_at=to_iso(group.last_died_at),
            sample_delivery_id=group.sample_id,
        )


class GroupsOut(Shape):
    groups: list[GroupOut]
    pagination: Pagination


def delivery_item(described: Described) -> DeliveryItem:
    return DeliveryItem(**_item_fields(described))


def dead_letter_item(described: Described) -> DeadLetterItem:
    cause = described.delivery.cause
    return DeadLetterItem(**_item_fields(described), cause=None if cause is None else hexadecimal(cause))


def hexadecimal(cause: int) -> str:
    return f"{cause:016x}"


def _item_fields(described: Described) -> dict[str, Any]:
    delivery = described.delivery
    return DeliveryOut.of(delivery, described.held).model_dump() | {
        "endpoint_name": described.endpoint_name,
        "error": delivery.code,
        "error_reason": delivery.reason,
        "retry_count": f"{delivery.retry_attempts} / {delivery.retries_max}",
        "first_failed_at": iso(delivery.first_failed_at),
    }
