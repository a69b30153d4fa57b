"""`doorstep bulk`: bulk operations under way."""

from __future__ import annotations

from typing import Annotated

import typer

from doorstep.cli import columns
from doorstep.cli.bulk_actions import watch as watch_it
from doorstep.cli.bulk_actions import words
from doorstep.cli.remote import Paging, Session, gather, remote

app = typer.Typer(no_args_is_help=True, help="See, pause, resume and cancel bulk operations.")

BulkId = Annotated[str, typer.Argument(help="The bulk operation's id.")]


@remote(app, "list")
def list_bulk(session: Session, paging: Paging) -> None:
    """List them, newest first."""
    rows = gather(session.client.bulk.page, paging)
    rows.show(session.output, "bulk", columns.BULKS, "There are no bulk operations.")


@remote(app)
def show(session: Session, bulk_id: BulkId) -> None:
    """Show how far one is."""
    session.output.answer(session.client.bulk.read(bulk_id))


@remote(app)
def watch(session: Session, bulk_id: BulkId) -> int:
    """Watch it to its end; the exit code is 1 if something failed or it was cancelled."""
    return watch_it(session, bulk_id)


@remote(app)
def pause(session: Session, bulk_id: BulkId) -> None:
    """Hold it where it is."""
    done = session.client.bulk.pause(bulk_id)
    session.output.line(done, words(done))


@remote(app)
def resume(session: Session, bulk_id: BulkId) -> None:
    """Let it go on."""
    done = session.client.bulk.resume(bulk_id)
    session.output.line(done, words(done))


@remote(app)
def cancel(session: Session, bulk_id: BulkId) -> None:
    """End it here; what it has done stays done."""
    done = session.client.bulk.cancel(bulk_id)
    session.output.line(done, words(done))


@remote(app)
def failures(session: Session, bulk_id: BulkId, paging: Paging) -> None:
    """List the deliveries that failed again."""
    rows = gather(lambda **query: session.client.bulk.failures(bulk_id, **query), paging)
    rows.show(session.output, "deliveries", columns.QUEUED, "Nothing failed.")
