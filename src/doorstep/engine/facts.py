"""Builds the facts and spans of each step from claims, settlements and receipts.

Each accepted event has a span. Each attempt has a span of its own: a child of the event's span, with a link to the span
of the previous attempt. The attempt of a lost worker gets its span when another worker settles it. If the lost worker
reports a result later, the late result gets a second span, linked to the first. Spans are encoded in their wire format
immediately, which costs less than storing them as objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from uuid import UUID

from msgspec import UNSET, UnsetType

from doorstep.clock import SECOND, Instant, to_iso
from doorstep.model.attempt import UNSEEN, Reply
from doorstep.model.claim import Claim, Move, Moved, Settled, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus, Receipt, Submission, Verdict
from doorstep.telemetry.facts import (
    DeliveryFailure,
    DeliveryTransition,
    Fact,
    LateSettle,
    RetryScheduled,
    StatusTransition,
)
from doorstep.telemetry.otlp import Attributes, SpanKind, Template, encode_span, template
from doorstep.telemetry.tracing import TraceContext, Tracing, acceptance_span, attempt_span, context_of, late_span

_TRACEBACK_CHARS_MAX = 2_000
"""A line of the log should fit into one write to a pipe (4,096 bytes), so that the lines of several workers do not
mix. The attempt log has the whole traceback. Only tracebacks have several lines."""


def accepted(submissions: Sequence[Submission], receipts: Sequence[Receipt]) -> Iterator[Fact]:
    for submission, receipt in zip(submissions, receipts, strict=True):
        if receipt.verdict is Verdict.ACCEPTED and not receipt.known:
            event = submission.event
            yield StatusTransition(
                at=to_iso(event.created_at),
                event_id=event.event_id,
                old_status=None,
                new_status=EventStatus.RECEIVED,
                retry_attempts=0,
                correlation_id=event.correlation_id,
                org_id=event.org_id,
                user_id=event.user_id or UNSET,
            )


def claimed(claims: Sequence[Claim]) -> Iterator[Fact]:
    """The facts of claims from one round. All of these claims were made at the same time."""
    at = to_iso(claims[0].claimed_at) if claims else ""
    for claim in claims:
        yield _transition(claim, at, DeliveryState.PENDING, DeliveryState.IN_PROGRESS)
        if claim.picked_up:
            yield StatusTransition(
                at=at,
                event_id=claim.event_id,
                old_status=EventStatus.RECEIVED,
                new_status=EventStatus.QUEUED,
                retry_attempts=claim.retry_attempts,
                correlation_id=claim.correlation_id,
                org_id=claim.org_id,
                user_id=claim.user_id or UNSET,
            )


def settled(
    settlements: Sequence[Settlement], result: Settled, now: Instant, stored_at: Instant | None = None
) -> Iterator[Fact]:
    """The facts of settlements that were written with the time `now`, and were stored at `stored_at`."""
    at, late = to_iso(now), {(claim.delivery_id, claim.token) for claim in result.late}
    for settlement in settlements:
        claim = settlement.claim
        if late and (claim.delivery_id, claim.token) in late:
            yield _late(claim, at)
            continue
        if not settlement.outcome.succeeded:
            yield _failure(settlement, at)
        if settlement.due_at is not None:
            yield _scheduled(settlement, settlement.due_at, now if stored_at is None else stored_at)
        delivered = settlement.state is DeliveryState.DELIVERED
        seconds = max(0, now - claim.owed_at) / SECOND if delivered else UNSET
        yield _transition(claim, at, DeliveryState.IN_PROGRESS, settlement.state, seconds)
    errors = {one.claim.event_id: one.outcome.reason for one in settlements if one.state is DeliveryState.DEAD}
    yield from status_changes(result.changes, now, errors)


def released(claims: Sequence[Claim], now: Instant) -> Iterator[Fact]:
    at = to_iso(now)
    for claim in claims:
        yield _transition(claim, at, DeliveryState.IN_PROGRESS, DeliveryState.PENDING)


def moved(done: Moved, now: Instant) -> Iterator[Fact]:
    """The facts of deliveries that operators or services moved, and of their events."""
    at = to_iso(now)
    for move in done.moves:
        yield _transition(move, at, move.old_state, move.new_state)
    yield from status_changes(done.changes, now)


def status_changes(
    changes: Sequence[StatusChange], now: Instant, errors: Mapping[UUID, str] = MappingProxyType({})
) -> Iterator[Fact]:
    """`errors` are the reasons for which attempts ended their events."""
    at = to_iso(now)
    for change in changes:
        failed = change.new_status is EventStatus.FAILED
        yield StatusTransition(
            at=at,
            event_id=change.event_id,
            old_status=change.old_status,
            new_status=change.new_status,
            retry_attempts=change.retry_attempts,
            correlation_id=change.correlation_id,
            org_id=change.org_id,
            user_id=change.user_id or UNSET,
            failed_at=at if failed else UNSET,
            last_error=errors.get(change.event_id, UNSET) if failed else UNSET,
        )


def _transition(
    delivery: Claim | Move,
    at: str,
    old: DeliveryState,
    new: DeliveryState,
    time_to_delivery_seconds: float | UnsetType = UNSET,
) -> Fact:
    return DeliveryTransition(
        at=at,
        delivery_id=delivery.delivery_id,
        event_id=delivery.event_id,
        endpoint_id=delivery.endpoint_id,
        old_state=old,
        new_state=new,
        attempt=delivery.attempt,
        correlation_id=delivery.correlation_id,
        org_id=delivery.org_id,
        time_to_delivery_seconds=time_to_delivery_seconds,
    )


def _failure(settlement: Settlement, at: str) -> Fact:
    claim, outcome = settlement.claim, settlement.outcome
    return DeliveryFailure(
        at=at,
        level="error" if settlement.state is DeliveryState.DEAD else "warning",
        event_id=claim.event_id,
        delivery_id=claim.delivery_id,
        endpoint_id=claim.endpoint_id,
        retry_attempts=claim.retry_attempts,
        error={
            "category": outcome.category,
            "code": outcome.code,
            "response_code": outcome.reply.status,
            "attempt_count": claim.attempt,
        },
        error_reason=outcome.reason,
        traceback=outcome.detail[-_TRACEBACK_CHARS_MAX:] if "\n" in outcome.detail.rstrip() else UNSET,
        next_retry_at=None if settlement.due_at is None else to_iso(settlement.due_at),
        correlation_id=claim.correlation_id,
        org_id=claim.org_id,
        user_id=claim.user_id or UNSET,
    )


def _scheduled(settlement: Settlement, due_at: Instant, stored_at: Instant) -> Fact:
    claim = settlement.claim
    return RetryScheduled(
        at=to_iso(stored_at),
        event_id=claim.event_id,
        delivery_id=claim.delivery_id,
        endpoint_id=claim.endpoint_id,
        retry_attempts=claim.retry_attempts,
        next_retry_at=to_iso(due_at),
        duration_seconds=scheduling_seconds(settlement, stored_at),
        correlation_id=claim.correlation_id,
        org_id=claim.org_id,
        user_id=claim.user_id or UNSET,
    )


def scheduling_seconds(settlement: Settlement, stored_at: Instant) -> float:
    """The time from the failure of an attempt until its retry was stored."""
    return max(0, stored_at - settlement.outcome.reply.finished_at) / SECOND


def _late(claim: Claim, at: str) -> Fact:
    return LateSettle(
        at=at,
        delivery_id=claim.delivery_id,
        event_id=claim.event_id,
        attempt=claim.attempt,
        worker=claim.worker,
        correlation_id=claim.correlation_id,
        org_id=claim.org_id,
    )


# -- spans -----------------------------------------------------------------------------------------------------


def accepted_spans(
    submissions: Sequence[Submission], receipts: Sequence[Receipt], now: Instant, tracing: Tracing
) -> Iterator[bytes]:
    for submission, receipt in zip(submissions, receipts, strict=True):
        event = submission.event
        if event.trace is None:
            continue
        context = context_of(event.trace)
        if receipt.verdict is Verdict.ACCEPTED and not receipt.known and tracing.samples(context):
            yield encode_span(
                _acceptance_template(
                    event.org_id, event.event_type, len(submission.deliveries), context.parent_id != 0
                ),
                context.trace_id,
                acceptance_span(event.event_id),
                context.parent_id,
                event.created_at,
                now,
                event.event_id,
                None,
                event.correlation_id,
                state=context.state,
            )


def settled_spans(settlements: Sequence[Settlement], result: Settled, tracing: Tracing) -> Iterator[bytes]:
    late = {(claim.delivery_id, claim.token) for claim in result.late}
    for settlement in settlements:
        claim = settlement.claim
        if claim.trace is None:
            continue
        context = context_of(claim.trace)
        if tracing.samples(context):
            is_late = bool(late) and (claim.delivery_id, claim.token) in late
            yield _attempt_span(settlement, context, is_late)


def _attempt_span(settlement: Settlement, context: TraceContext, is_late: bool) -> bytes:
    claim, outcome, reply = settlement.claim, settlement.outcome, settlement.outcome.reply
    span_id, linked_id = _span_ids(claim, is_late)
    return encode_span(
        _attempt_template(
            claim.org_id.int,  # an int is faster to hash than a UUID
            claim.endpoint_id.int,
            claim.event_type,
            claim.attempt,
            "late" if is_late else settlement.state._value_,
            reply.status,
            outcome.code,
            _kind(outcome.code, reply),
            linked_id != 0,
        ),
        context.trace_id,
        span_id,
        acceptance_span(claim.event_id),
        reply.started_at,
        reply.finished_at,
        claim.event_id,
        claim.delivery_id,
        claim.correlation_id,
        linked_id,
        context.state,
        "" if outcome.code is None else outcome.reason,
    )


def _span_ids(claim: Claim, is_late: bool) -> tuple[int, int]:
    """The id of a claim's span, and the id of the span that it links to; 0 means no link.

    A span links to the span of the previous attempt. The span of a late result links to the one that was recorded when
    another worker settled the same attempt.
    """
    own = attempt_span(claim.delivery_id, claim.attempt)
    if is_late:
        return late_span(claim.delivery_id, claim.token), own
    return own, attempt_span(claim.delivery_id, claim.attempt - 1) if claim.attempt > 1 else 0


def _kind(code: str | None, reply: Reply) -> SpanKind:
    """CLIENT for an HTTP request, CONSUMER for a handler, INTERNAL if it is unknown whether an attempt was made."""
    if code in UNSEEN:
        return SpanKind.INTERNAL
    return SpanKind.CLIENT if b"webhook-id" in reply.request_headers else SpanKind.CONSUMER


@lru_cache(maxsize=4_096)
def _acceptance_template(org_id: UUID, event_type: str, deliveries: int, parent: bool) -> Template:
    attributes: Attributes = (
        ("doorstep.org_id", str(org_id)),
        ("doorstep.event_type", event_type),
        ("doorstep.deliveries", deliveries),
    )
    return template("doorstep.accept", SpanKind.PRODUCER, attributes, parent=parent, linked=False)


@lru_cache(maxsize=4_096)
def _attempt_template(
    org_id: int,
    endpoint_id: int,
    event_type: str,
    attempt: int,
    state: str,
    status: int | None,
    code: str | None,
    kind: SpanKind,
    linked: bool,
) -> Template:
    attributes: Attributes = (
        ("doorstep.org_id", str(UUID(int=org_id))),
        ("doorstep.endpoint_id", str(UUID(int=endpoint_id))),
        ("doorstep.event_type", event_type),
        ("doorstep.attempt", attempt),
        ("doorstep.state", state),
        *(() if status is None else (("http.response.status_code", status),)),
        *(() if code is None else (("error.type", code),)),
    )
    return template("doorstep.attempt", kind, attributes, parent=True, linked=linked)
