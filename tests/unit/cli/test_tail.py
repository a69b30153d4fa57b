"""`doorstep tail`: which changes it prints, and that it prints none of them twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from doorstep.cli.monitoring import Seen
from doorstep.schemas.deliveries import DeadLetter
from doorstep.schemas.events import EventItem

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def an_event(number: int, status: Any = "received") -> EventItem:
    return EventItem(
        event_id=UUID(int=number),
        status=status,
        retry_attempts=0,
        last_retry_at=None,
        failed_at=None,
        next_retry_at=None,
        event_type="order.paid",
        created_at=NOW,
        correlation_id="c",
        user_id=None,
        deliveries=1,
    )


def a_delivery(attempts: int, state: str = "pending", settled_at: datetime | None = None) -> DeadLetter:
    known: dict[str, Any] = dict.fromkeys(DeadLetter.__struct_fields__)
    given = {"delivery_id": UUID(int=1), "attempts": attempts, "state": state, "settled_at": settled_at}
    return DeadLetter(**known | given)


def test_an_event_is_told_when_it_is_new_and_when_its_status_changes() -> None:
    seen = Seen()
    looks = [an_event(1), an_event(1), an_event(1, "queued"), an_event(1, "delivered"), an_event(1, "delivered")]
    assert [len(list(seen.changes("event", [event]))) for event in looks] == [1, 0, 1, 1, 0]
    assert seen.knows(an_event(1).event_id)
    assert not seen.knows(an_event(2).event_id)


def test_a_retry_is_told_once_for_each_failure_and_not_while_it_is_under_way() -> None:
    seen = Seen()
    looks = [a_delivery(1), a_delivery(1), a_delivery(2, "in_progress"), a_delivery(2), a_delivery(2)]
    assert [len(list(seen.changes("retry", [one]))) for one in looks] == [1, 0, 0, 1, 0]


def test_a_dead_letter_is_told_again_when_it_dies_again() -> None:
    seen = Seen()
    later = NOW.replace(hour=1)
    looks = [a_delivery(3, "dead", NOW), a_delivery(3, "dead", NOW), a_delivery(4, "dead", later)]
    assert [len(list(seen.changes("dead_letter", [one]))) for one in looks] == [1, 0, 1]


def test_a_delivery_that_was_retried_and_then_dies_is_told_as_both() -> None:
    seen = Seen()
    assert len(list(seen.changes("retry", [a_delivery(1)]))) == 1
    assert len(list(seen.changes("dead_letter", [a_delivery(2, "dead", NOW)]))) == 1


def test_what_was_seen_longest_ago_is_forgotten_first() -> None:
    seen = Seen(remembered_max=2)
    assert [seen.is_new(key, 1) for key in ("a", "b", "a", "c")] == [True, True, False, True]
    assert [seen.knows(key) for key in ("a", "b", "c")] == [True, False, True]
