"""The spans of each step: one for every acceptance, one below it for every attempt, linked to the attempt before.

They are written down at once, in the form in which they are sent: that costs less than to keep them for later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.settlement import Settled, Settlement
from doorstep.model.submission import Receipt, Submission, Verdict
from doorstep.telemetry.tracing.context import acceptance_span, attempt_span, context_of
from doorstep.telemetry.tracing.otlp import Attributes, Kind, Template, template, written
from doorstep.telemetry.tracing.recording import Tracing


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
                _acceptance(
                    event.org_id, event.event_type, len(submission.deliveries), context.parent_id != 0, context.state
                ),
                context.trace_id,
                acceptance_span(event.event_id),
                context.parent_id,
                event.created_at,
                now,
                event.event_id,
                None,
                event.correlation_id,
            )


def settled(settlements: Sequence[Settlement], result: Settled, tracing: Tracing) -> Iterator[bytes]:
    late = {(claim.delivery_id, claim.token) for claim in result.late}
    for settlement in settlements:
        claim = settlement.claim
        if claim.trace is None:
            continue
        context = context_of(claim.trace)
        if tracing.samples(context):
            outcome, reply = settlement.outcome, settlement.outcome.reply
            came_to = "late" if late and (claim.delivery_id, claim.token) in late else settlement.state._value_
            yield written(
                _attempt(
                    claim.org_id.int,  # a UUID takes longer to be looked up
                    claim.endpoint_id.int,
                    claim.event_type,
                    claim.attempt,
                    came_to,
                    reply.status,
                    outcome.code,
                    outcome.reason,
                    b"webhook-id" in reply.request_headers,
                    context.state,
                ),
                context.trace_id,
                attempt_span(claim.delivery_id, claim.attempt),
                acceptance_span(claim.event_id),
                reply.started_at,
                reply.finished_at,
                claim.event_id,
                claim.delivery_id,
                claim.correlation_id,
                attempt_span(claim.delivery_id, claim.attempt - 1) if claim.attempt > 1 else 0,
            )


@lru_cache(maxsize=4_096)
def _acceptance(org_id: UUID, event_type: str, deliveries: int, parent: bool, state: str) -> Template:
    attributes: Attributes = (
        ("doorstep.org_id", str(org_id)),
        ("doorstep.event_type", event_type),
        ("doorstep.deliveries", deliveries),
    )
    return template("doorstep.accept", Kind.PRODUCER, attributes, parent=parent, linked=False, state=state)


@lru_cache(maxsize=4_096)
def _attempt(
    org_id: int,
    endpoint_id: int,
    event_type: str,
    attempt: int,
    came_to: str,
    status: int | None,
    code: str | None,
    reason: str,
    over_http: bool,
    state: str,
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
    kind, error = Kind.CLIENT if over_http else Kind.CONSUMER, reason if code is not None else ""
    return template("doorstep.attempt", kind, attributes, parent=True, linked=attempt > 1, error=error, state=state)
