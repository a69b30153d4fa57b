"""The spans of each step: one for every acceptance, one below it for every attempt, linked to the attempt before.

A lost worker's attempt is settled on its behalf and has its span from that. Should the worker come back, what it says is
one more span, linked to that one.

They are written down at once, in the form in which they are sent: that costs less than to keep them for later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.attempt import UNSEEN, Reply
from doorstep.model.claim import Claim, Settled, Settlement
from doorstep.model.event import Receipt, Submission, Verdict
from doorstep.telemetry.otlp import Attributes, Kind, Template, template, written
from doorstep.telemetry.tracing import TraceContext, Tracing, acceptance_span, attempt_span, context_of, late_span


def accepted(
    submissions: Sequence[Submission], receipts: Sequence[Receipt], now: Instant, tracing: Tracing
) -> Iterator[bytes]:
    for submission, receipt in zip(submissions, receipts, strict=True):
        event = submission.event
        if event.trace is None:
            continue
        context = context_of(event.trace)
        if receipt.verdict is Verdict.ACCEPTED and not receipt.known and tracing.samples(context):
            yield written(
                _acceptance(event.org_id, event.event_type, len(submission.deliveries), context.parent_id != 0),
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


def settled(settlements: Sequence[Settlement], result: Settled, tracing: Tracing) -> Iterator[bytes]:
    late = {(claim.delivery_id, claim.token) for claim in result.late}
    for settlement in settlements:
        claim = settlement.claim
        if claim.trace is None:
            continue
        context = context_of(claim.trace)
        if tracing.samples(context):
            is_late = bool(late) and (claim.delivery_id, claim.token) in late
            yield _attempted(settlement, context, is_late)


def _attempted(settlement: Settlement, context: TraceContext, is_late: bool) -> bytes:
    claim, outcome, reply = settlement.claim, settlement.outcome, settlement.outcome.reply
    span_id, linked_id = _ids(claim, is_late)
    return written(
        _attempt(
            claim.org_id.int,  # a UUID takes longer to be looked up
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


def _ids(claim: Claim, is_late: bool) -> tuple[int, int]:
    """Of the span, and of the one that it is linked to: the attempt before, or the one that was settled in its place."""
    own = attempt_span(claim.delivery_id, claim.attempt)
    if is_late:
        return late_span(claim.delivery_id, claim.token), own
    return own, attempt_span(claim.delivery_id, claim.attempt - 1) if claim.attempt > 1 else 0


def _kind(code: str | None, reply: Reply) -> Kind:
    """A request, or a call of a handler; neither where none was made, or nobody is left who could tell."""
    if code in UNSEEN:
        return Kind.INTERNAL
    return Kind.CLIENT if b"webhook-id" in reply.request_headers else Kind.CONSUMER


@lru_cache(maxsize=4_096)
def _acceptance(org_id: UUID, event_type: str, deliveries: int, parent: bool) -> Template:
    attributes: Attributes = (
        ("doorstep.org_id", str(org_id)),
        ("doorstep.event_type", event_type),
        ("doorstep.deliveries", deliveries),
    )
    return template("doorstep.accept", Kind.PRODUCER, attributes, parent=parent, linked=False)


@lru_cache(maxsize=4_096)
def _attempt(
    org_id: int,
    endpoint_id: int,
    event_type: str,
    attempt: int,
    came_to: str,
    status: int | None,
    code: str | None,
    kind: Kind,
    linked: bool,
) -> Template:
    attributes: Attributes = (
        ("doorstep.org_id", str(UUID(int=org_id))),
        ("doorstep.endpoint_id", str(UUID(int=endpoint_id))),
        ("doorstep.event_type", event_type),
        ("doorstep.attempt", attempt),
        ("doorstep.state", came_to),
        *(() if status is None else (("http.response.status_code", status),)),
        *(() if code is None else (("error.type", code),)),
    )
    return template("doorstep.attempt", kind, attributes, parent=True, linked=linked)
