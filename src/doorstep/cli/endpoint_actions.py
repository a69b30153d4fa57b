"""`doorstep endpoints pause, resume, test, rotate-secret, circuit, replay`: what operators do with a receiver."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from doorstep.cli import columns
from doorstep.cli.bulk_actions import How, begin
from doorstep.cli.endpoint_form import EndpointArgument
from doorstep.cli.endpoint_names import endpoint_named
from doorstep.cli.options import EventType, Past, Reason, Yes, parsed_by, span_seconds
from doorstep.cli.output import Column
from doorstep.cli.prompts import confirm, read_payload
from doorstep.cli.remote import Session, remote
from doorstep.schemas.events import Status

app = typer.Typer()


@remote(app)
def pause(session: Session, endpoint: EndpointArgument, reason: Reason = None) -> None:
    """Hold its deliveries until it is resumed; none are lost."""
    found = endpoint_named(session.client, endpoint)
    done = session.client.endpoints.pause(found.endpoint_id, reason=reason)
    session.output.line(done, f"{done.name}  {done.state}")


@remote(app)
def resume(
    session: Session,
    endpoint: EndpointArgument,
    drain: Annotated[
        float | None, typer.Option("--drain", metavar="N", help="Let the backlog go at so many a second.")
    ] = None,
    skip_before: Annotated[
        datetime | None,
        typer.Option("--skip-before", metavar="TIME", parser=Past, help="Give up what was accepted before this."),
    ] = None,
) -> None:
    """Let its deliveries go again: all at once, at a rate, or without the old ones.

    Example: `doorstep endpoints resume shop --drain 20 --skip-before 1d`
    """
    found = endpoint_named(session.client, endpoint)
    done = session.client.endpoints.resume(found.endpoint_id, drain_per_second=drain, skip_older_than=skip_before)
    session.output.line(done, f"{done.name}  {done.state}")


@remote(app)
def test(
    session: Session,
    endpoint: EndpointArgument,
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Its event type. [default: doorstep.test]")
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="PAYLOAD", help="JSON, @file, or - for standard input.")
    ] = None,
) -> None:
    """Send it a test event through the ordinary path."""
    found = endpoint_named(session.client, endpoint)
    content = None if payload is None else read_payload("--payload", payload)
    receipt = session.client.endpoints.test(found.endpoint_id, event_type=event_type, payload=content)
    words = f"{receipt.event_id}  {receipt.status}; see `doorstep status {receipt.event_id} --wait`"
    session.output.line(receipt, words)


@remote(app, "rotate-secret")
def rotate_secret(
    session: Session,
    endpoint: EndpointArgument,
    overlap: Annotated[
        float | None,
        typer.Option(
            "--overlap",
            metavar="SPAN",
            parser=parsed_by(span_seconds),
            help="How long both secrets sign. [default: 1d]",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Give it a new signing secret, shown only this once; for a while requests are signed with both."""
    found = endpoint_named(session.client, endpoint)
    confirm(session.output, f"Rotate the secret of {found.name}?", yes)
    session.output.answer(session.client.endpoints.rotate_secret(found.endpoint_id, overlap_seconds=overlap))


@remote(app)
def circuit(session: Session, endpoint: EndpointArgument) -> None:
    """Show whether it is being tried (closed) or spared (open), and what led to it."""
    found = session.client.endpoints.circuit(endpoint_named(session.client, endpoint).endpoint_id)
    if session.output.as_json:
        session.output.json(found)
        return
    session.output.answer(found, [Column(name, name) for name in ("state", "failures", "until")])
    session.output.listing(None, found.history, columns.CIRCUIT_HISTORY, "It has never opened.")


@remote(app)
def replay(
    session: Session,
    endpoint: EndpointArgument,
    how: How,
    since: Annotated[
        datetime, typer.Option("--since", metavar="TIME", parser=Past, help="Events accepted from here on: 2h")
    ],
    until: Annotated[
        datetime | None, typer.Option("--until", metavar="TIME", parser=Past, help="Up to here. [default: now]")
    ] = None,
    event_type: EventType = None,
    status: Annotated[
        Status | None,
        typer.Option("--status", help="Only events with this status."),
    ] = None,
) -> int:
    """Send it the events of a time range once more, as new events.

    Example: `doorstep endpoints replay shop --since 2h --type 'order.*' --rate 50`
    """
    endpoints, endpoint_id = session.client.endpoints, endpoint_named(session.client, endpoint).endpoint_id
    past: dict[str, Any] = {
        "created_from": since,
        "created_before": until or datetime.now(UTC),
        "event_type": event_type,
        "status": status,
    }
    return begin(
        session,
        "replay",
        lambda: endpoints.preview_replay(endpoint_id, **past),
        lambda: endpoints.replay(endpoint_id, **past, rate_per_second=how.rate, reason=how.reason),
        how,
    )
