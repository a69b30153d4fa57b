"""What each step says about itself: the facts that follow from claims, settlements and receipts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doorstep.clock import Instant, to_iso
from doorstep.model.claim import Claim, Moved, Settled, Settlement, StatusChange
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventStatus, Receipt, Submission, Verdict
from doorstep.telemetry.facts import DeliveryFailure, DeliveryTransition, Fact, LateSettle, StatusTransition


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
            )


def claimed(claims: Sequence[Claim]) -> Iterator[Fact]:
    """Of claims that were taken together, and so at one moment."""
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
            )


def settled(settlements: Sequence[Settlement], result: Settled, now: Instant) -> Iterator[Fact]:
    at, late = to_iso(now), {(claim.delivery_id, claim.token) for claim in result.late}
    for settlement in settlements:
        claim = settlement.claim
        if late and (claim.delivery_id, claim.token) in late:
            yield _late(claim, at)
            continue
        if not settlement.outcome.succeeded:
            yield _failure(settlement, at)
        yield _transition(claim, at, DeliveryState.IN_PROGRESS, settlement.state)
    yield from status_changes(result.changes, now)


def released(claims: Sequence[Claim], now: Instant) -> Iterator[Fact]:
    at = to_iso(now)
    for claim in claims:
        yield _transition(claim, at, DeliveryState.IN_PROGRESS, DeliveryState.PENDING)


def moved(done: Moved, now: Instant) -> Iterator[Fact]:
    """What operators and services did to deliveries, and to their events."""
    at = to_iso(now)
    for move in done.moves:
        yield DeliveryTransition(
            at=at,
            delivery_id=move.delivery_id,
            event_id=move.event_id,
            endpoint_id=move.endpoint_id,
            old_state=move.old_state,
            new_state=move.new_state,
            attempt=move.attempt,
            correlation_id=move.correlation_id,
            org_id=move.org_id,
        )
    yield from status_changes(done.changes, now)


def status_changes(changes: Sequence[StatusChange], now: Instant) -> Iterator[Fact]:
    at = to_iso(now)
    for change in changes:
        yield StatusTransition(
            at=at,
            event_id=change.event_id,
            old_status=change.old_status,
            new_status=change.new_status,
            retry_attempts=change.retry_attempts,
            correlation_id=change.correlation_id,
            org_id=change.org_id,
        )


def _transition(claim: Claim, at: str, old: DeliveryState, new: DeliveryState) -> Fact:
    return DeliveryTransition(
        at=at,
        delivery_id=claim.delivery_id,
        event_id=claim.event_id,
        endpoint_id=claim.endpoint_id,
        old_state=old,
        new_state=new,
        attempt=claim.attempt,
        correlation_id=claim.correlation_id,
        org_id=claim.org_id,
    )


def _failure(settlement: Settlement, at: str) -> Fact:
    claim, outcome = settlement.claim, settlement.outcome
    return DeliveryFailure(
        at=at,
        level="error" if settlement.due_at is None else "warning",
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
        next_retry_at=None if settlement.due_at is None else to_iso(settlement.due_at),
        correlation_id=claim.correlation_id,
        org_id=claim.org_id,
    )


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
