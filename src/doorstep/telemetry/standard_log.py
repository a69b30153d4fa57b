"""Reports failures to the standard library's logging, for programs that embed Doorstep.

All records go to the logger `doorstep`. A program that has not configured logging sees them on standard error, also
under uvicorn, which configures only its own loggers: Python prints warnings and errors that no handler takes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from uuid import UUID

from msgspec import UNSET

from doorstep.telemetry.facts import (
    RANKS,
    CircuitTransition,
    DeliveryFailure,
    DeliveryTransition,
    EndpointDisabled,
    Fact,
    LateSettle,
    Notice,
    ServiceTrouble,
    level_of,
)

_log = logging.getLogger("doorstep")
_WARNING = RANKS["warning"]


class StandardLog:
    """A telemetry subscriber."""

    def __init__(self, name_of: Callable[[UUID], str]) -> None:
        """`name_of` returns the name of an endpoint."""
        self._name_of = name_of

    def __call__(self, facts: Sequence[Fact]) -> None:
        waiting = {fact.delivery_id for fact in facts if isinstance(fact, DeliveryTransition) and _waits(fact)}
        for fact in facts:
            rank = _rank(fact)
            if rank >= _WARNING and _log.isEnabledFor(rank):
                _log.handle(self._record(fact, rank, waiting))

    def _record(self, fact: Fact, rank: int, waiting: Container[UUID]) -> logging.LogRecord:
        record = _log.makeRecord(_log.name, rank, "(doorstep)", 0, self._message(fact, waiting), (), None)
        # Formatters print this text below the message. There is no exception any more: it may be from another process.
        record.exc_text = _traceback(fact)
        return record

    def _message(self, fact: Fact, waiting: Container[UUID]) -> str:
        match fact:
            case DeliveryFailure():
                failed = f"{self._name_of(fact.endpoint_id)}: attempt {fact.error['attempt_count']} failed"
                following = _following(fact, waiting)
                code = fact.error["code"]
                reason = code if fact.error_reason == code else f"{code}: {fact.error_reason}"  # no message was given
                return f"{failed}, {following} (event {fact.event_id}, delivery {fact.delivery_id}); {reason}"
            case DeliveryTransition():
                return (
                    f"{self._name_of(fact.endpoint_id)}: delivery {fact.delivery_id} of event {fact.event_id} became a"
                    " dead letter without another attempt"
                )
            case EndpointDisabled():
                return f"{self._name_of(fact.endpoint_id)} was disabled: {fact.reason}"
            case CircuitTransition():
                return f"{self._name_of(fact.endpoint_id)}: the circuit is {fact.new_state}; {fact.reason}"
            case LateSettle():
                return f"the result of delivery {fact.delivery_id} came after its lease had ended, and changed nothing"
            case ServiceTrouble():
                return f"the {fact.service} failed and will try again in {fact.retry_in_seconds:g} s: {fact.error}"
            case Notice():
                return " ".join([fact.message, *(f"{k}={v}" for k, v in fact.fields.items() if k != "traceback")])
        return fact.event


def _waits(fact: DeliveryTransition) -> bool:
    return (fact.old_state, fact.new_state) == ("in_progress", "pending")


def _following(fact: DeliveryFailure, waiting: Container[UUID]) -> str:
    if fact.next_retry_at is not None:
        return f"retry at {fact.next_retry_at}"
    # Under the policy `manual`, the delivery is pending again. The fact that says so is in the same batch.
    return "it waits in the retry queue for an operator" if fact.delivery_id in waiting else "it is now a dead letter"


def _rank(fact: Fact) -> int:
    """The level of the record. Only failures have one; the fact about an attempt covers the death of its delivery."""
    if isinstance(fact, DeliveryTransition) and (fact.old_state, fact.new_state) == ("pending", "dead"):
        return _WARNING
    return RANKS[level_of(fact)]


def _traceback(fact: Fact) -> str | None:
    found = fact.fields.get("traceback") if isinstance(fact, Notice) else getattr(fact, "traceback", UNSET)
    return found.rstrip("\n") if isinstance(found, str) else None
