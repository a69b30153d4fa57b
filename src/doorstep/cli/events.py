"""`doorstep send`, `status`, `events`, `inbox` and `deliveries`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from doorstep.cli.commands import ExitCode, Paging, Session, remote
from doorstep.cli.options import (
    DurationSeconds,
    EventId,
    EventType,
    Future,
    Reason,
    Since,
    Until,
    Yes,
    option,
    read_payload,
)
from doorstep.cli.output import columns
from doorstep.schemas.events import InboxStatus, Status

commands = typer.Typer()
events = typer.Typer()
inbox = typer.Typer()
deliveries = typer.Typer()


# -- send and status ---------------------------------------------------------------------------------------

Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it is delivered or has failed (exit code 1).")]
Timeout = Annotated[float, option("--timeout", "SPAN", "How long --wait waits at most.", DurationSeconds)]
_TIMEOUT: Any = "30s"
"""A text, because the option's parser is applied to the default too."""


@remote(commands)
def send(
    session: Session,
    event_type: Annotated[str, typer.Argument(help="The event's type, such as order.paid.")],
    payload: Annotated[
        str, typer.Argument(help="JSON, or @file, or - for standard input; delivered byte for byte.")
    ] = "-",
    endpoint: Annotated[
        list[str] | None, option("--endpoint", "ENDPOINT", "Only to this endpoint, by id or name; repeatable.")
    ] = None,
    at: Annotated[
        datetime | None, option("--at", "TIME", "Do not deliver before this time, or this long from now: 1h.", Future)
    ] = None,
    expires: Annotated[datetime | None, option("--expires", "TIME", "Do not try after this time.", Future)] = None,
    ordering_key: Annotated[
        str | None, option("--ordering-key", "KEY", "Deliver events with the same key in order.")
    ] = None,
    metadata: Annotated[str | None, option("--metadata", "JSON", "Metadata to store with the event.")] = None,
    idempotency_key: Annotated[
        str | None, option("--idempotency-key", "KEY", "Events sent with the same key are stored once.")
    ] = None,
    wait: Wait = False,
    timeout: Timeout = _TIMEOUT,
) -> int:
    """Send an event. When the command returns, the event is on stable storage.

    Examples: `doorstep send order.paid '{"order": 42}'`, `doorstep send order.paid @order.json --wait`,
    `make-payload | doorstep send order.paid`
    """
    receipt = session.client.send(
        event_type,
        read_payload("the payload", payload),
        endpoint_ids=[str(session.endpoint_id(one)) for one in endpoint] if endpoint else None,
        deliver_at=at,
        expires_at=expires,
        ordering_key=ordering_key,
        metadata=None if metadata is None else msgspec.json.decode(read_payload("--metadata", metadata)),
        idempotency_key=idempotency_key,
    )
    if wait:
        return _wait(session, str(receipt.event_id), timeout)
    count = "1 delivery" if receipt.deliveries == 1 else f"{receipt.deliveries} deliveries"
    session.output.line(receipt, f"{receipt.event_id}  {receipt.status}, {count}")
    return ExitCode.OK


@remote(commands)
def status(session: Session, event_id: EventId, wait: Wait = False, timeout: Timeout = _TIMEOUT) -> int:
    """Show the status of an event, without its payload.

    Example: `doorstep status 0193… --wait --timeout 2m`
    """
    if wait:
        return _wait(session, event_id, timeout)
    session.output.answer(session.client.events.status(event_id))
    return ExitCode.OK


def _wait(session: Session, event_id: str, timeout: float) -> int:
    """Wait, then print the last status seen. The exit code is 1 if the event was not delivered in time."""
    from doorstep.client import WaitEnded

    try:
        seen: object = session.client.wait_for_delivery(event_id, timeout)
    except WaitEnded as ended:
        session.output.answer(ended.seen)
        session.output.note(f"doorstep: {ended}")
        return ExitCode.FAILED
    session.output.answer(seen)
    return ExitCode.OK


# -- events ------------------------------------------------------------------------------------------------


def _payload_text(event: Any) -> str:
    return bytes(event.payload_json).decode("utf-8", "replace")


_EVENTS = columns("event_id event_type status retry_attempts created_at", spare="next_retry_at deliveries")
_DETAILS = columns(
    "event_id event_type status created_at deliver_at expires_at ordering_key retry_attempts next_retry_at failed_at "
    "correlation_id metadata payload",
    payload=_payload_text,
)
_DELIVERIES = columns(
    "delivery_id state attempts response_code remark", spare="endpoint_id", remark=lambda one: one.held or one.remark
)


@remote(events, "list")
def list_events(
    session: Session,
    paging: Paging,
    status: Annotated[Status | None, typer.Option("--status", help="Only events with this status.")] = None,
    event_type: EventType = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List events, newest first.

    Example: `doorstep events list --status failed --type 'order.*' --since 2h`
    """
    read = session.client.events.page
    page = paging.fetch(read, status=status, event_type=event_type, created_from=since, created_before=until)
    session.show_page(page, "events", _EVENTS, "No events match.")


@remote(events)
def show(session: Session, event_id: EventId) -> None:
    """Show an event with its payload and all its deliveries."""
    event = session.client.events.read(event_id)
    session.output.answer(event, _DETAILS)
    session.output.listing(None, event.deliveries, _DELIVERIES, "No endpoint subscribes to it; it is in the inbox.")


@remote(events)
def retry(session: Session, event_id: EventId, reason: Reason = None) -> None:
    """Retry its failed and waiting deliveries now."""
    done = session.client.events.retry(event_id, reason=reason)
    session.output.line(done, f"{len(done.retried)} retried, {len(done.refused)} refused")


@remote(events)
def cancel(session: Session, event_id: EventId, reason: Reason = None, yes: Yes = False) -> None:
    """Cancel its waiting deliveries."""
    session.output.confirm(f"Cancel the waiting deliveries of event {event_id}?", yes)
    done = session.client.events.cancel(event_id, reason=reason)
    session.output.line(done, f"{len(done.cancelled)} cancelled, {len(done.refused)} refused")


@remote(events)
def replay(
    session: Session,
    event_id: EventId,
    endpoint: Annotated[str, option("--endpoint", "ENDPOINT", "The endpoint to send it to, by id or name.")],
) -> None:
    """Send it again, as a new event, to one endpoint."""
    receipt = session.client.events.replay(event_id, str(session.endpoint_id(endpoint)))
    session.output.line(receipt, f"{receipt.event_id}  {receipt.status}")


@remote(events)
def delete(session: Session, event_id: EventId, yes: Yes = False) -> None:
    """Delete an event with its payload and dead letters, and cancel its waiting deliveries."""
    session.output.confirm(f"Delete event {event_id} and its payload?", yes)
    session.client.events.delete(event_id)
    session.output.line({"event_id": event_id, "deleted": True}, f"{event_id}  deleted")


# -- inbox -------------------------------------------------------------------------------------------------

_INBOX = columns("event_id event_type created_at payload", payload=_payload_text)


@remote(inbox, "list")
def list_inbox(
    session: Session,
    paging: Paging,
    status: Annotated[InboxStatus, typer.Option("--status", help="Waiting events, or failed ones.")] = "received",
) -> None:
    """List events in the inbox with their payloads, oldest first."""
    page = paging.fetch(session.client.inbox.page, status=status)
    session.show_page(page, "events", _INBOX, "The inbox is empty.")


@remote(inbox)
def ack(session: Session, event_id: EventId) -> None:
    """Acknowledge an event: it counts as delivered and leaves the inbox."""
    done = session.client.inbox.acknowledge(event_id)
    session.output.line(done, f"{done.event_id}  {done.status}")


# -- deliveries --------------------------------------------------------------------------------------------


def attempt_reason(attempt: Any) -> str:
    """Why an attempt failed, and whether its result came too late to count."""
    return (attempt.error_reason or "") + (" (late: it changed nothing)" if attempt.late else "")


DeliveryId = Annotated[str, typer.Argument(help="The delivery's id.")]

_ATTEMPTS = columns(
    "no started_at took response_code error_code reason",
    spare="next_retry_at",
    no="number",
    took=lambda one: f"{one.duration_ms:.0f} ms",
    reason=attempt_reason,
)
_HISTORY = columns("at old_state new_state attempt note")


@remote(deliveries, "show")
def show_delivery(session: Session, delivery_id: DeliveryId) -> None:
    """Show the state of a delivery."""
    session.output.answer(session.client.deliveries.read(delivery_id))


@remote(deliveries)
def attempts(session: Session, delivery_id: DeliveryId) -> None:
    """Show its attempt log: every attempt with its response or error. With --json, also headers and bodies."""
    page = session.client.deliveries.attempts(delivery_id)
    session.show_page(page, "attempts", _ATTEMPTS, "There were no attempts yet.")


@remote(deliveries)
def history(session: Session, delivery_id: DeliveryId) -> None:
    """Show its history, one transition on each line."""
    page = session.client.deliveries.history(delivery_id)
    session.show_page(page, "history", _HISTORY, "It has no history.")
