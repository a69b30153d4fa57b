"""`doorstep events` and `doorstep inbox`: what was sent, and what became of it."""

from __future__ import annotations

from typing import Annotated

import typer

from doorstep.cli import columns
from doorstep.cli.columns import payload_text
from doorstep.cli.endpoint_names import endpoint_id_of
from doorstep.cli.options import EventType, Reason, Since, Until, Yes
from doorstep.cli.output import Column
from doorstep.cli.prompts import confirm
from doorstep.cli.remote import Paging, Session, gather, remote
from doorstep.schemas.events import InboxStatus, Status

events = typer.Typer(no_args_is_help=True, help="See what was sent and what became of it; act on one event.")
inbox = typer.Typer(no_args_is_help=True, help="Fetch events that no endpoint takes, and acknowledge them.")

EventId = Annotated[str, typer.Argument(help="The event's id.")]


@remote(events, "list")
def list_events(
    session: Session,
    paging: Paging,
    status: Annotated[Status | None, typer.Option("--status", help="Only those with this status.")] = None,
    event_type: EventType = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List events, newest first.

    Example: `doorstep events list --status failed --type 'order.*' --since 2h`
    """
    page = session.client.events.page
    rows = gather(page, paging, status=status, event_type=event_type, created_from=since, created_before=until)
    rows.show(session.output, "events", columns.EVENTS, "No events match.")


@remote(events)
def show(session: Session, event_id: EventId) -> None:
    """Show an event in full: its payload, and every delivery."""
    event = session.client.events.read(event_id)
    if session.output.as_json:
        session.output.json(event)
        return
    session.output.answer(event, _IN_FULL)
    session.output.listing(None, event.deliveries, columns.DELIVERIES, "No endpoint takes it; it is in the inbox.")


@remote(events)
def retry(session: Session, event_id: EventId, reason: Reason = None) -> None:
    """Try its failed and waiting deliveries now."""
    done = session.client.events.retry(event_id, reason=reason)
    session.output.line(done, f"{len(done.retried)} retried, {len(done.refused)} could not be")


@remote(events)
def cancel(session: Session, event_id: EventId, reason: Reason = None, yes: Yes = False) -> None:
    """Call off its waiting deliveries."""
    confirm(session.output, f"Call off what still waits of event {event_id}?", yes)
    done = session.client.events.cancel(event_id, reason=reason)
    session.output.line(done, f"{len(done.cancelled)} called off, {len(done.refused)} could not be")


@remote(events)
def replay(
    session: Session,
    event_id: EventId,
    endpoint: Annotated[
        str, typer.Option("--endpoint", metavar="ENDPOINT", help="To this endpoint: its id or its name.")
    ],
) -> None:
    """Send it once more, as a new event, to one endpoint."""
    receipt = session.client.events.replay(event_id, str(endpoint_id_of(session.client, endpoint)))
    session.output.line(receipt, f"{receipt.event_id}  {receipt.status}")


@remote(events)
def delete(session: Session, event_id: EventId, yes: Yes = False) -> None:
    """Erase an event with its payload; what waits is called off, its dead letters are deleted."""
    confirm(session.output, f"Erase event {event_id} and its payload?", yes)
    session.client.events.delete(event_id)
    session.output.line({"event_id": event_id, "deleted": True}, f"{event_id}  deleted")


@remote(inbox, "list")
def list_inbox(
    session: Session,
    paging: Paging,
    status: Annotated[
        InboxStatus, typer.Option("--status", help="Those that wait, or those that failed.")
    ] = "received",
) -> None:
    """List what waits to be fetched, oldest first, with its payload."""
    rows = gather(session.client.inbox.page, paging, status=status)
    rows.show(session.output, "events", columns.INBOX, "The inbox is empty.")


@remote(inbox)
def ack(session: Session, event_id: EventId) -> None:
    """Say that you have it: it is delivered, and leaves the inbox."""
    done = session.client.inbox.acknowledge(event_id)
    session.output.line(done, f"{done.event_id}  {done.status}")


_IN_FULL = (
    *(Column(name.replace("_", " "), name) for name in ("event_id", "event_type", "status", "created_at")),
    *(Column(name.replace("_", " "), name) for name in ("deliver_at", "expires_at", "ordering_key")),
    *(Column(name.replace("_", " "), name) for name in ("retry_attempts", "next_retry_at", "failed_at")),
    Column("correlation id", "correlation_id"),
    Column("metadata", "metadata"),
    Column("payload", payload_text),
)
