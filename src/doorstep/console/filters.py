"""The filters of the lists, as the URL holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from doorstep.clock import Instant, seconds
from doorstep.console.fields import Fields
from doorstep.errors import InvalidInput
from doorstep.model.event import EventStatus
from doorstep.model.listing import EventFilter, Letters, Queue

QUEUE_FILTER = ("status", "event_type", "endpoint_id", "age", "failed_before")
LETTER_FILTER = ("status", "event_type", "endpoint_id", "cause", "died_from", "died_before")
EVENT_FILTER = ("status", "event_type", "created_from", "created_before")
"""The fields that a filter consists of. Whatever else a URL holds says nothing about what is wanted."""
AGES = {"5m": 300, "1h": 3_600, "6h": 21_600, "24h": 86_400, "3d": 259_200}
"""How long ago something first failed, in seconds."""
T = TypeVar("T")
_CAUSE_MAX = 2**63


def queue_of(fields: Fields, now: Instant) -> Queue:
    """How old a first failure must be is an age, or an instant for a question that must not move on with the time."""
    status, age = fields.text("status"), fields.text("age")
    return Queue(
        waiting=None if status is None else one_of("status", status, {"pending": True, "in_progress": False}),
        event_type=fields.text("event_type"),
        endpoint_id=fields.id("endpoint_id"),
        failed_before=fields.moment("failed_before") if age is None else now - seconds(one_of("age", age, AGES)),
    )


def letters_of(fields: Fields) -> Letters:
    status = fields.text("status") or "dead"
    return Letters(
        archived=one_of("status", status, {"dead": False, "archived": True}),
        event_type=fields.text("event_type"),
        endpoint_id=fields.id("endpoint_id"),
        cause=_cause(fields.text("cause")),
        died_from=fields.moment("died_from"),
        died_before=fields.moment("died_before"),
    )


def events_of(fields: Fields) -> EventFilter:
    return EventFilter(
        status=fields.choice("status", EventStatus),
        event_type=fields.text("event_type"),
        created_from=fields.moment("created_from"),
        created_before=fields.moment("created_before"),
    )


def one_of(field: str, value: str, choices: Mapping[str, T]) -> T:
    if value not in choices:
        raise InvalidInput(field, f"must be one of {', '.join(choices)}")
    return choices[value]


def _cause(text: str | None) -> int | None:
    """As the groups name it: sixteen hexadecimal digits."""
    if text is None:
        return None
    try:
        cause = int(text, 16)
    except ValueError:
        cause = -1
    if not 0 <= cause < _CAUSE_MAX:
        raise InvalidInput("cause", "must be a cause as the groups of dead letters name it")
    return cause
