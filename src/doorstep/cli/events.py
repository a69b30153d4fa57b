"""`doorstep send`, `status`, `events`, `inbox`, `deliveries`, `pipelines` and `batches`."""

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
from doorstep.schemas.events import BatchStatus, InboxStatus, Status

commands = typer.Typer()
events = typer.Typer()
inbox = typer.Typer()
deliveries = typer.Typer()
pipelines = typer.Typer()
batches = typer.Typer()


# -- send and status ---------------------------------------------------------------------------------------

Wait = Annotated[
    bool, typer.Option("--wait", "-w", help="Wait until the event is delivered, or has failed (exit code 1).")
]
Timeout = Annotated[float, option("--timeout", "SPAN", "How long --wait waits at most.", DurationSeconds)]
_TIMEOUT: Any = "30s"
"""A string, because the option's parser is also applied to the default."""


@remote(commands)
def send(
    session: Session,
    event_type: Annotated[str, typer.Argument(help="The event's type, such as order.paid.")],
    payload: Annotated[
        str, typer.Argument(help="JSON, or @file, or - for standard input; delivered byte for byte.")
    ] = "-",
    endpoint: Annotated[
        list[str] | None, option("--endpoint", "ENDPOINT", "Deliver only to this endpoint, by id or name; repeatable.")
    ] = None,
    at: Annotated[
        datetime | None, option("--at", "TIME", "Do not deliver before this time, or this long from now: 1h.", Future)
    ] = None,
    expires: Annotated[
        datetime | None, option("--expires", "TIME", "Do not attempt delivery after this time.", Future)
    ] = None,
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
    """Wait for the event, then print its last known status. The exit code is 1 if it was not delivered in time."""
    from doorstep.client import WaitEnded

    try:
        session.output.answer(session.client.wait_for_delivery(event_id, timeout))
    except WaitEnded as ended:
        session.output.answer(ended.seen)
        session.output.note(f"doorstep: {ended}")
        return ExitCode.FAILED
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
_OF_EVENT = columns(
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
    session.output.listing(None, event.deliveries, _OF_EVENT, "No endpoint subscribes to it; it is in the inbox.")


@remote(events)
def retry(session: Session, event_id: EventId, reason: Reason = None) -> None:
    """Retry an event: its failed and waiting deliveries are retried now."""
    done = session.client.events.retry(event_id, reason=reason)
    session.output.line(done, f"{len(done.retried)} retried, {len(done.refused)} refused")


@remote(events)
def cancel(session: Session, event_id: EventId, reason: Reason = None, yes: Yes = False) -> None:
    """Cancel an event's waiting deliveries."""
    session.output.confirm(f"Cancel the waiting deliveries of event {event_id}?", yes)
    done = session.client.events.cancel(event_id, reason=reason)
    session.output.line(done, f"{len(done.cancelled)} cancelled, {len(done.refused)} refused")


@remote(events)
def replay(
    session: Session,
    event_id: EventId,
    endpoint: Annotated[str, option("--endpoint", "ENDPOINT", "The endpoint to send it to, by id or name.")],
) -> None:
    """Send an event to one endpoint again, as a new event."""
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


def _attempt_reason(attempt: Any) -> str:
    """Why an attempt failed, and whether its result came too late to count."""
    return (attempt.error_reason or "") + (" (late: the result changed nothing)" if attempt.late else "")


DeliveryId = Annotated[str, typer.Argument(help="The delivery's id.")]

_ATTEMPTS = columns(
    "no started_at took response_code error_code reason",
    spare="next_retry_at",
    no="number",
    took=lambda one: f"{one.duration_ms:.0f} ms",
    reason=_attempt_reason,
)
_DELIVERY_HISTORY = columns("at old_state new_state attempt note")


@remote(deliveries, "show")
def show_delivery(session: Session, delivery_id: DeliveryId) -> None:
    """Show the state of a delivery."""
    session.output.answer(session.client.deliveries.read(delivery_id))


@remote(deliveries, "attempts")
def list_attempts(session: Session, delivery_id: DeliveryId) -> None:
    """Show a delivery's attempt log: every attempt with its response or error. With --json, also headers and bodies."""
    page = session.client.deliveries.attempts(delivery_id)
    session.show_page(page, "attempts", _ATTEMPTS, "There were no attempts yet.")


@remote(deliveries, "history")
def delivery_history(session: Session, delivery_id: DeliveryId) -> None:
    """Show a delivery's history, one transition per line."""
    page = session.client.deliveries.history(delivery_id)
    session.show_page(page, "history", _DELIVERY_HISTORY, "It has no history.")


# -- pipelines ---------------------------------------------------------------------------------------------

Pipeline = Annotated[str, typer.Argument(help="The pipeline's name.")]
EntityId = Annotated[str, typer.Argument(help="The entity's id.")]
Gate = Annotated[str | None, option("--gate", "GATE", "Only if the entity waits at this gate. [default: any gate]")]

_PIPELINES = columns("pipeline statuses gates", pipeline="name")
_ENTITIES = columns("entity_id status since error_reason", spare="created_at", since="changed_at")
_HISTORY = columns("at old_status new_status reason", spare="event_id")


@remote(pipelines)
def names(session: Session) -> None:
    """List the pipelines with their statuses and gates."""
    empty = "The server's program declares no pipelines."
    session.show_page(session.client.pipelines.page(), "pipelines", _PIPELINES, empty)


@remote(pipelines, "list")
def list_entities(
    session: Session,
    pipeline: Pipeline,
    paging: Paging,
    status: Annotated[str | None, option("--status", "STATUS", "Only entities with this status.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Include archived entities.")] = False,
) -> None:
    """List entities, newest first.

    Example: `doorstep pipelines list protocol --status dead_letter`
    """
    client = session.client.pipelines
    page = paging.fetch(lambda **query: client.entities(pipeline, **query), status=status, archived=archived or None)
    session.show_page(page, "entities", _ENTITIES, "There are no entities.")


@remote(pipelines, "show")
def show_entity(session: Session, pipeline: Pipeline, entity_id: EntityId) -> None:
    """Show an entity."""
    session.output.answer(session.client.pipelines.read(pipeline, entity_id))


@remote(pipelines)
def history(session: Session, pipeline: Pipeline, entity_id: EntityId) -> None:
    """Show every status change of an entity, oldest first."""
    page = session.client.pipelines.history(pipeline, entity_id)
    session.show_page(page, "history", _HISTORY, "It has no history.")


@remote(pipelines, "retry")
def retry_entity(session: Session, pipeline: Pipeline, entity_id: EntityId, reason: Reason = None) -> None:
    """Restart a failed, dead or archived entity from the first stage."""
    done = session.client.pipelines.retry(pipeline, entity_id, reason=reason)
    session.output.line(done, f"{entity_id}  {done['status']}")


@remote(pipelines)
def approve(session: Session, pipeline: Pipeline, entity_id: EntityId, gate: Gate = None) -> None:
    """Approve an entity that waits at a gate."""
    done = session.client.pipelines.approve(pipeline, entity_id, gate=gate)
    session.output.line(done, f"{entity_id}  {done.status}")


@remote(pipelines)
def reject(session: Session, pipeline: Pipeline, entity_id: EntityId, reason: Reason = None, gate: Gate = None) -> None:
    """Reject an entity that waits at a gate. It moves to the dead letters."""
    done = session.client.pipelines.reject(pipeline, entity_id, reason=reason, gate=gate)
    session.output.line(done, f"{entity_id}  {done.status}")


@remote(pipelines, "delete")
def delete_entity(session: Session, pipeline: Pipeline, entity_id: EntityId, yes: Yes = False) -> None:
    """Delete an entity and its history, whatever its status."""
    session.output.confirm(f"Delete {pipeline} {entity_id} and its history?", yes)
    session.client.pipelines.delete(pipeline, entity_id)
    session.output.line({"entity_id": entity_id, "deleted": True}, f"{entity_id}  deleted")


# -- batches -----------------------------------------------------------------------------------------------

BatchId = Annotated[str, typer.Argument(help="The batch's id, which is also the id of its event.")]

_BATCHES = columns("batch_id event_type status attempts error_code next_retry_at", spare="created_at error_reason")
_SUBMISSIONS = columns(
    "no at error_code reason carrier_response", spare="next_retry_at", no="number", reason=_attempt_reason
)


@remote(batches, "list")
def list_batches(
    session: Session,
    paging: Paging,
    status: Annotated[BatchStatus | None, typer.Option("--status", help="Only batches with this status.")] = None,
    event_type: EventType = None,
) -> None:
    """List batches, newest first.

    Example: `doorstep batches list --status FAILED`
    """
    page = paging.fetch(session.client.batches.page, status=status, event_type=event_type)
    session.show_page(page, "batches", _BATCHES, "No batches match.")


@remote(batches, "show")
def show_batch(session: Session, batch_id: BatchId) -> None:
    """Show the status of a batch."""
    session.output.answer(session.client.batches.read(batch_id))


@remote(batches)
def attempts(session: Session, batch_id: BatchId) -> None:
    """Show a batch's carrier log: every submission with the carrier's response."""
    page = session.client.batches.attempts(batch_id)
    session.show_page(page, "attempts", _SUBMISSIONS, "It has not been submitted yet.")


@remote(batches)
def resubmit(session: Session, batch_id: BatchId, reason: Reason = None) -> None:
    """Submit a FAILED batch again, immediately and with its retry count reset.

    Example: `doorstep batches resubmit 0193… --reason 'the carrier is back'`
    """
    batch = session.client.batches.resubmit(batch_id, reason=reason)
    session.output.line(batch, f"Batch {batch.batch_id} is {batch.status} again.")
