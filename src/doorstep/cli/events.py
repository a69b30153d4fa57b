"""`doorstep send`, `status`, `find`, `search-fields`, `events`, `inbox`, `deliveries`, `attempts`, `pipelines` and
`batches`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from doorstep.cli.commands import ExitCode, Paging, Session, none_of, remote
from doorstep.cli.options import (
    DurationSeconds,
    EventId,
    EventType,
    FieldValue,
    Future,
    OfEndpoint,
    Reason,
    Since,
    Until,
    Yes,
    fields_from,
    flag,
    option,
    read_payload,
)
from doorstep.cli.output import columns, duration
from doorstep.schemas.deliveries import AttemptResult, DeliveryStateFilter, Transition
from doorstep.schemas.events import BatchStatus, Status
from doorstep.schemas.inbox import InboxStatus

commands = typer.Typer()
events = typer.Typer()
inbox = typer.Typer()
deliveries = typer.Typer()
attempts = typer.Typer()
pipelines = typer.Typer()
batches = typer.Typer()


# -- send and status ---------------------------------------------------------------------------------------

Wait = Annotated[bool, flag("--wait", "Wait until the event is delivered, or has failed (exit code 1).", "-w")]
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


_FOUND = columns("kind item_id label", spare="event_id")
_FIELDS = columns("name indexed_from")
_EVENTS = columns("event_id event_type status retry_attempts created_at", spare="next_retry_at deliveries")
_DETAILS = columns(
    "event_id event_type status created_at deliver_at expires_at ordering_key retry_attempts next_retry_at failed_at "
    "correlation_id metadata payload",
    payload=_payload_text,
)
_OF_EVENT = columns(
    "delivery_id state attempts response_code remark",
    spare="endpoint_id",
    remark=lambda one: one.held.reason if one.held else one.remark,
)


@remote(events, "list")
def list_events(
    session: Session,
    paging: Paging,
    status: Annotated[Status | None, flag("--status", "Only events with this status.")] = None,
    event_type: EventType = None,
    since: Since = None,
    until: Until = None,
    endpoint: OfEndpoint = None,
    correlation_id: Annotated[
        str | None, option("--correlation-id", "ID", "Only events with this correlation id.")
    ] = None,
    ordering_key: Annotated[str | None, option("--ordering-key", "KEY", "Only events with this ordering key.")] = None,
    idempotency_key: Annotated[
        str | None, option("--idempotency-key", "KEY", "The event that was sent with this key in the last 24 hours.")
    ] = None,
    user: Annotated[
        str | None,
        option("--user", "USER_ID", "Only events of this user; also needed to find a user's idempotency key."),
    ] = None,
    payload: Annotated[
        list[str] | None,
        option("--payload", "PATH=VALUE", "Only events with this value in the payload; repeatable.", FieldValue),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        option("--metadata", "KEY=VALUE", "Only events with this value in the metadata; repeatable.", FieldValue),
    ] = None,
) -> None:
    """List events, newest first.

    Examples: `doorstep events list --status failed --type 'order.*' --since 2h`,
    `doorstep events list --payload order.id=42 --since 7d`
    """
    filters = {
        "status": status,
        "event_type": event_type,
        "since": since,
        "until": until,
        "endpoint": endpoint,
        "correlation_id": correlation_id,
        "ordering_key": ordering_key,
        "idempotency_key": idempotency_key,
        "user_id": user,
        "payload": fields_from(payload),
        "metadata": fields_from(metadata),
    }
    page = paging.fetch(session.client.events.page, **filters)
    session.show_page(page, "events", _EVENTS, none_of("events", paging, **filters))


@remote(commands)
def find(
    session: Session, id: Annotated[str, typer.Argument(help="A whole id, or its last eight digits.")]
) -> ExitCode:
    """Show what an id belongs to: an event, a delivery, an endpoint, an alert or a bulk operation.

    Example: `doorstep find 5f1b7b6c`
    """
    found = session.client.find(id).items
    session.output.listing({"items": found}, found, _FOUND, "Nothing has this id.")
    return ExitCode.OK if found else ExitCode.NOT_FOUND


@remote(commands)
def search_fields(
    session: Session,
    fields: Annotated[list[str] | None, typer.Argument(help="Fields to declare instead of the present ones.")] = None,
    none: Annotated[bool, flag("--none", "Declare no fields.")] = False,
) -> None:
    """Show or declare the fields by which events are found at once (declaring needs the role `admin`).

    Example: `doorstep search-fields payload.order.id metadata.customer`
    """
    client = session.client
    declared = (client.set_search_fields(fields or ()) if fields or none else client.search_fields()).fields
    session.output.listing({"fields": declared}, declared, _FIELDS, "No fields are declared.")


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

_INBOX = columns("event_id event_type created_at leased_by payload", payload=_payload_text)
_LEASED = columns("event_id lease_token event_type visible_at payload", payload=_payload_text)


@remote(inbox, "list")
def list_inbox(
    session: Session,
    paging: Paging,
    status: Annotated[InboxStatus, flag("--status", "Waiting events, or failed ones.")] = "received",
) -> None:
    """List events in the inbox with their payloads, oldest first."""
    page = paging.fetch(session.client.inbox.page, status=status)
    empty = "The inbox is empty." if status == "received" else "No failed events."
    session.show_page(page, "events", _INBOX, none_of("events", paging, empty))


@remote(inbox)
def lease(
    session: Session,
    limit: Annotated[int | None, option("--limit", "N", "The maximum number of events; 10 by default.")] = None,
    visibility: Annotated[
        float | None, option("--visibility", "SPAN", "How long nobody else gets them; 1m by default.", DurationSeconds)
    ] = None,
    event_type: Annotated[
        list[str] | None, option("--type", "TYPE", "Only events of this type; can be repeated.")
    ] = None,
) -> None:
    """Lease events: no other consumer gets them until the lease ends.

    Acknowledge each of them with `doorstep inbox ack`, or give it back with `doorstep inbox nack`.

    Example: `doorstep inbox lease --limit 20 --visibility 5m --type cart.abandoned`
    """
    leased = session.client.inbox.lease(limit=limit, visibility_seconds=visibility, event_types=event_type or None)
    session.output.listing({"events": leased}, leased, _LEASED, "No event can be leased.")


LeaseToken = Annotated[
    int | None,
    option(
        "--lease-token", "N", "The token of your lease. The command fails if someone else has leased the event since."
    ),
]


@remote(inbox)
def ack(session: Session, event_id: EventId, lease_token: LeaseToken = None) -> None:
    """Acknowledge an event: it counts as delivered and leaves the inbox."""
    done = session.client.inbox.acknowledge(event_id, lease_token=lease_token)
    session.output.line(done, f"{done.event_id}  {done.status}")


@remote(inbox)
def nack(
    session: Session,
    event_id: EventId,
    lease_token: LeaseToken = None,
    delay: Annotated[
        float | None, option("--delay", "SPAN", "When it can be leased again; now by default.", DurationSeconds)
    ] = None,
) -> None:
    """Give an event back: it can be leased again, now or after a delay."""
    done = session.client.inbox.nack(event_id, lease_token=lease_token, delay_seconds=delay)
    session.output.line(done, f"{done.event_id}  {done.status}")


# -- deliveries --------------------------------------------------------------------------------------------


def _attempt_reason(attempt: Any) -> str:
    """Why an attempt failed, and whether its result came too late to count."""
    return (attempt.error_reason or "") + (" (late: the result changed nothing)" if attempt.late else "")


class DeliveryFilters(NamedTuple):
    """The filters that the lists of deliveries and of attempts share, with the same names as in the API."""

    endpoint_id: OfEndpoint = None
    event_type: EventType = None
    error_code: Annotated[str | None, option("--code", "CODE", "Only with this error code, such as TIMEOUT.")] = None
    since: Since = None
    until: Until = None


def _query(session: Session, filters: DeliveryFilters) -> dict[str, Any]:
    return filters._asdict() | {"endpoint_id": session.endpoint_id(filters.endpoint_id)}


DeliveryId = Annotated[str, typer.Argument(help="The delivery's id, or its last eight digits.")]

_ATTEMPTS = columns(
    "no started_at took response_code error_code reason",
    spare="next_retry_at",
    no="number",
    took=lambda one: f"{one.duration_ms:.0f} ms",
    reason=_attempt_reason,
)


def note_with_holds(change: Transition) -> str:
    """For example `claimed by web-1; held for 25 s: The endpoint was paused.`"""
    spans = ((one.until - one.since, one.reason) for one in change.holds)
    return "; ".join([change.note, *(f"held for {duration(span.total_seconds())}: {why}" for span, why in spans)])


_DELIVERY_HISTORY = columns("at old_state new_state attempt note", note=note_with_holds)
_DELIVERIES = columns(
    "delivery_id event_type endpoint_name state error created_at",
    spare="attempts response_code remark",
    error="error_code",
    remark=lambda one: one.held.reason if one.held else one.remark,
)
_ALL_ATTEMPTS = columns(
    "started_at delivery_id no event_type endpoint_name took response_code error_code",
    spare="reason",
    no="number",
    took=lambda one: f"{one.duration_ms:.0f} ms",
    reason=_attempt_reason,
)


@remote(deliveries, "list")
def list_deliveries(
    session: Session,
    filters: DeliveryFilters,
    paging: Paging,
    state: Annotated[DeliveryStateFilter | None, flag("--state", "Only deliveries in this state.")] = None,
) -> None:
    """List deliveries in any state, newest first.

    Example: `doorstep deliveries list --endpoint shop --state delivered --since 1h`
    """
    page = paging.fetch(session.client.deliveries.page, state=state, **_query(session, filters))
    session.show_page(page, "deliveries", _DELIVERIES, "No deliveries match.")


@remote(attempts, "list")
def list_all_attempts(
    session: Session,
    filters: DeliveryFilters,
    paging: Paging,
    state: Annotated[AttemptResult | None, flag("--state", "Only attempts with this result.")] = None,
) -> None:
    """List the attempts of all deliveries, newest first.

    Example: `doorstep attempts list --endpoint shop --state failed --code TIMEOUT`
    """
    page = paging.fetch(session.client.attempts.page, state=state, **_query(session, filters))
    session.show_page(page, "attempts", _ALL_ATTEMPTS, "No attempts match.")


@remote(deliveries, "show")
def show_delivery(session: Session, delivery_id: DeliveryId) -> None:
    """Show the state of a delivery."""
    session.output.answer(session.client.deliveries.read(delivery_id))


@remote(deliveries, "attempts")
def list_attempts(session: Session, delivery_id: DeliveryId) -> None:
    """Show a delivery's attempt log: every attempt with its response or error, and the latest traceback. With --json,
    also headers and bodies."""
    page = session.client.deliveries.attempts(delivery_id)
    session.show_page(page, "attempts", _ATTEMPTS, "There were no attempts yet.")
    traced = [attempt for attempt in page.items if "\n" in attempt.error_detail.rstrip()]
    if traced:
        session.output.text(f"\nAttempt {traced[-1].number}:\n{traced[-1].error_detail.rstrip()}")


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
    archived: Annotated[bool, flag("--archived", "Include archived entities.")] = False,
) -> None:
    """List entities, newest first.

    Example: `doorstep pipelines list protocol --status dead_letter`
    """
    client = session.client.pipelines
    filters = {"status": status, "archived": archived or None}
    page = paging.fetch(lambda **query: client.entities(pipeline, **query), **filters)
    session.show_page(page, "entities", _ENTITIES, none_of("entities", paging, status=status))


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

BatchId = Annotated[
    str, typer.Argument(help="The batch's id, which is also the id of its event, or its last eight digits.")
]

_BATCHES = columns("batch_id event_type status attempts error_code next_retry_at", spare="created_at error_reason")
_SUBMISSIONS = columns(
    "no at error_code reason carrier_response", spare="next_retry_at", no="number", reason=_attempt_reason
)


@remote(batches, "list")
def list_batches(
    session: Session,
    paging: Paging,
    status: Annotated[BatchStatus | None, flag("--status", "Only batches with this status.")] = None,
    event_type: EventType = None,
) -> None:
    """List batches, newest first.

    Example: `doorstep batches list --status FAILED`
    """
    filters = {"status": status, "event_type": event_type}
    page = paging.fetch(session.client.batches.page, **filters)
    session.show_page(page, "batches", _BATCHES, none_of("batches", paging, **filters))


@remote(batches, "show")
def show_batch(session: Session, batch_id: BatchId) -> None:
    """Show the status of a batch."""
    session.output.answer(session.client.batches.read(batch_id))


@remote(batches, "attempts")
def list_submissions(session: Session, batch_id: BatchId) -> None:
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
