"""`doorstep send` and `doorstep status`: what most people do with a delivery engine."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from doorstep.cli.endpoint_names import endpoint_id_of
from doorstep.cli.exits import ExitCode
from doorstep.cli.options import Future, parsed_by, span_seconds
from doorstep.cli.prompts import read_payload
from doorstep.cli.remote import REMOTE_PANEL, Session, remote

app = typer.Typer()

Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it is delivered or has failed (exit code 1).")]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SPAN", parser=parsed_by(span_seconds), help="With --wait: at most so long."),
]
_TIMEOUT: Any = "30s"
"""The parser turns the default into a number, as it does with what is typed."""


@remote(app, rich_help_panel=REMOTE_PANEL)
def send(
    session: Session,
    event_type: Annotated[str, typer.Argument(help="The event's type, such as order.paid.")],
    payload: Annotated[
        str, typer.Argument(help="JSON, or @file, or - for standard input; delivered byte for byte.")
    ] = "-",
    endpoint: Annotated[
        list[str] | None,
        typer.Option("--endpoint", metavar="ENDPOINT", help="Only to this endpoint (id or name); repeatable."),
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(
            "--at", metavar="TIME", parser=Future, help="Deliver not before this, or not before so long from now: 1h."
        ),
    ] = None,
    expires: Annotated[
        datetime | None, typer.Option("--expires", metavar="TIME", parser=Future, help="Give up after this.")
    ] = None,
    ordering_key: Annotated[
        str | None,
        typer.Option("--ordering-key", metavar="KEY", help="Events with the same key arrive in their order."),
    ] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", metavar="JSON", help="Notes kept beside it.")] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="Sent again with the same key, it is stored once."),
    ] = None,
    wait: Wait = False,
    timeout: Timeout = _TIMEOUT,
) -> int:
    """Send an event. It is on stable storage when the command ends.

    Examples: `doorstep send order.paid '{"order": 42}'`, `doorstep send order.paid @order.json --wait`,
    `make-payload | doorstep send order.paid`
    """
    receipt = session.client.send(
        event_type,
        read_payload("the payload", payload),
        endpoint_ids=[str(endpoint_id_of(session.client, one)) for one in endpoint] if endpoint else None,
        deliver_at=at,
        expires_at=expires,
        ordering_key=ordering_key,
        metadata=None if metadata is None else msgspec.json.decode(read_payload("--metadata", metadata)),
        idempotency_key=idempotency_key,
    )
    if wait:
        return _wait(session, str(receipt.event_id), timeout)
    how_many = "1 delivery" if receipt.deliveries == 1 else f"{receipt.deliveries} deliveries"
    session.output.line(receipt, f"{receipt.event_id}  {receipt.status}, {how_many}")
    return ExitCode.OK


@remote(app, rich_help_panel=REMOTE_PANEL)
def status(
    session: Session,
    event_id: Annotated[str, typer.Argument(help="The event's id.")],
    wait: Wait = False,
    timeout: Timeout = _TIMEOUT,
) -> int:
    """Show where an event stands, without its payload.

    Example: `doorstep status 0193… --wait --timeout 2m`
    """
    if wait:
        return _wait(session, event_id, timeout)
    session.output.answer(session.client.events.status(event_id))
    return ExitCode.OK


def _wait(session: Session, event_id: str, timeout: float) -> int:
    """Shows the last status seen in any case; the exit code says whether it was the one waited for."""
    from doorstep.client import WaitEnded

    try:
        seen: object = session.client.wait_for_delivery(event_id, timeout)
    except WaitEnded as ended:
        session.output.answer(ended.seen)
        session.output.note(f"doorstep: {ended}")
        return ExitCode.FAILED
    session.output.answer(seen)
    return ExitCode.OK
