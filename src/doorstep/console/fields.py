"""Parses query parameters, form fields and list filters; InvalidInput names the field that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlencode
from uuid import UUID

from doorstep.clock import Instant, from_datetime, moment, seconds
from doorstep.console.formatting import SPAN_UNITS
from doorstep.errors import InvalidInput
from doorstep.model.event import EventStatus
from doorstep.model.listing import DeadLetterFilter, EventFilter, RetryQueueFilter

Choice = TypeVar("Choice", bound=StrEnum)
T = TypeVar("T")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)?")
_ID_RULE = "must be an id, such as 0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b"
_CAUSE_RULE = "must be a cause id from the list of causes: sixteen hexadecimal digits"


class Fields:
    """The query parameters of a URL, or the fields of a form. An empty field counts as missing."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.pairs = [(name, value) for name, value in pairs if value.strip()]

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def texts(self, name: str) -> list[str]:
        return [value for given, value in self.pairs if given == name]

    def raw(self, name: str) -> str | None:
        """The value with leading and trailing whitespace kept, for payloads."""
        return next(iter(self.texts(name)), None)

    def text(self, name: str) -> str | None:
        value = self.raw(name)
        return None if value is None else value.strip()

    def flag(self, name: str) -> bool:
        """Whether a checkbox is checked."""
        return self.raw(name) is not None

    def id(self, name: str) -> UUID | None:
        return self.read(name, UUID, _ID_RULE)

    def ids(self, name: str) -> list[UUID]:
        return [parsed(name, value.strip(), UUID, _ID_RULE) for value in self.texts(name)]

    def option(self, name: str, options: Mapping[str, T]) -> T | None:
        """The value of the chosen option."""
        value = self.text(name)
        return None if value is None else one_of(name, value, options)

    def choice(self, name: str, kind: type[Choice]) -> Choice | None:
        return self.option(name, {one.value: one for one in kind})

    def required_choice(self, name: str, kind: type[Choice]) -> Choice:
        return one_of(name, self.text(name) or "", {one.value: one for one in kind})

    def whole(self, name: str, low: int, high: int) -> int | None:
        number = self.number(name, low, high)
        if number is not None and number != int(number):
            raise InvalidInput(name, "must be a whole number")
        return None if number is None else int(number)

    def number(self, name: str, low: float, high: float) -> float | None:
        number = self.read(name, float, "must be a number")
        if number is not None and not low <= number <= high:  # this also rejects NaN
            raise InvalidInput(name, f"must be from {low:g} to {high:g}")
        return number

    def percent(self, name: str) -> float | None:
        """A percentage as a fraction, without rounding noise: 99.9 % is 0.999."""
        percent = self.number(name, 0, 100)
        return None if percent is None else round(percent / 100, 12)

    def moment(self, name: str) -> Instant | None:
        """A date, or a date and a time. Without an offset, it is read as UTC."""
        return self.read(name, _moment, "must be a date and a time, such as 2026-01-31 14:30 (UTC)")

    def for_input(self, name: str) -> str:
        """The value for a date and time input, in UTC without an offset; empty if it cannot be parsed."""
        try:
            at = self.moment(name)
        except InvalidInput:
            return ""
        return "" if at is None else moment(at).replace(" ", "T")

    def span(self, name: str) -> float | None:
        """A duration in seconds: `5`, `5s`, `5m`, `2h`, `1d`."""
        value = self.text(name)
        return None if value is None else span_from_text(name, value)

    def read(self, name: str, parse: Callable[[str], T], rule: str) -> T | None:
        """The parsed text. If the text cannot be parsed, raises InvalidInput with `rule` as its message."""
        value = self.text(name)
        return None if value is None else parsed(name, value, parse, rule)

    def without(self, *names: str) -> Fields:
        return Fields(pair for pair in self.pairs if pair[0] not in names)

    def only(self, *names: str) -> Fields:
        return Fields(pair for pair in self.pairs if pair[0] in names)

    def having(self, **values: object) -> Fields:
        """A copy with these fields replaced; None removes a field."""
        given = [(name, str(value)) for name, value in values.items() if value is not None]
        return Fields(self.without(*values).pairs + given)

    def where(self, **values: object) -> str:
        """The result of `having`, encoded as the query of a URL."""
        return urlencode(self.having(**values).pairs)


def parsed(field: str, text: str, parse: Callable[[str], T], rule: str) -> T:
    try:
        return parse(text)
    except (ValueError, OverflowError):
        raise InvalidInput(field, rule) from None


def one_of(field: str, value: str, options: Mapping[str, T]) -> T:
    if value not in options:
        raise InvalidInput(field, f"must be one of {', '.join(options)}")
    return options[value]


def span_from_text(field: str, text: str) -> float:
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidInput(field, f"{text[:40]!r} is not a duration; write 30s, 5m, 2h, 1d or seconds")
    return float(found[1]) * SPAN_UNITS[(found[2] or "s")[0]]


def _moment(text: str) -> Instant:
    moment = datetime.fromisoformat(text)
    return from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


# -- filters -------------------------------------------------------------------------------------------------

QUEUE_FILTER = ("status", "event_type", "endpoint_id", "age", "failed_before")
LETTER_FILTER = ("status", "event_type", "endpoint_id", "cause", "died_from", "died_before")
EVENT_FILTER = ("status", "event_type", "created_from", "created_before")
"""The fields of each filter. Other query parameters do not belong to the filter."""
AGES = {"5m": 300, "1h": 3_600, "6h": 21_600, "24h": 86_400, "3d": 259_200}
"""The options for the age of the first failure, in seconds."""


def queue_of(fields: Fields, now: Instant) -> RetryQueueFilter:
    """The filter of the retry queue. The field `age` is relative to `now`. A confirmation sends the fixed time
    `failed_before` instead, so that the selection stays the same until the user confirms."""
    age = fields.option("age", AGES)
    return RetryQueueFilter(
        waiting=fields.option("status", {"pending": True, "in_progress": False}),
        event_type=fields.text("event_type"),
        endpoint_id=fields.id("endpoint_id"),
        failed_before=fields.moment("failed_before") if age is None else now - seconds(age),
    )


def letters_of(fields: Fields) -> DeadLetterFilter:
    return DeadLetterFilter(
        archived=fields.option("status", {"dead": False, "archived": True}) or False,
        event_type=fields.text("event_type"),
        endpoint_id=fields.id("endpoint_id"),
        cause=fields.read("cause", _cause, _CAUSE_RULE),
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


def _cause(text: str) -> int:
    cause = int(text, 16)
    if not 0 <= cause < 2**63:
        raise ValueError("out of range")
    return cause
