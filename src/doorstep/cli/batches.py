"""`doorstep batches`: what batch handlers submit, what the other side said, and once more."""

from __future__ import annotations

from typing import Annotated

import typer

from doorstep.cli.columns import BATCHES, SUBMISSIONS
from doorstep.cli.options import EventType, Reason
from doorstep.cli.remote import Paging, Session, gather, remote
from doorstep.schemas.batches import BatchStatus

app = typer.Typer(no_args_is_help=True, help="Find batches by status, read their carrier log, resubmit them.")

BatchId = Annotated[str, typer.Argument(help="The batch's id, which is that of its event.")]
Status = Annotated[BatchStatus | None, typer.Option("--status", help="Only these.")]


@remote(app, "list")
def list_batches(session: Session, paging: Paging, status: Status = None, event_type: EventType = None) -> None:
    """List them, newest first.

    Example: `doorstep batches list --status FAILED`
    """
    rows = gather(session.client.batches.page, paging, status=status, event_type=event_type)
    rows.show(session.output, "batches", BATCHES, "There are no such batches.")


@remote(app)
def show(session: Session, batch_id: BatchId) -> None:
    """Show how one stands."""
    session.output.answer(session.client.batches.read(batch_id))


@remote(app)
def attempts(session: Session, batch_id: BatchId) -> None:
    """Show its carrier log: every submission, with what the carrier said."""
    page = session.client.batches.attempts(batch_id)
    whole = {"attempts": page.items, "pagination": page.pagination}
    session.output.listing(whole, page, SUBMISSIONS, "It has not been submitted yet.")


@remote(app)
def resubmit(session: Session, batch_id: BatchId, reason: Reason = None) -> None:
    """Submit a FAILED one again, at once and with all its retries.

    Example: `doorstep batches resubmit 0193… --reason 'the carrier is back'`
    """
    batch = session.client.batches.resubmit(batch_id, reason=reason)
    session.output.line(batch, f"Batch {batch.batch_id} is {batch.status} again.")
