"""`doorstep pipelines`: entities on their way through the stages of a program's pipelines."""

from __future__ import annotations

from typing import Annotated

import typer

from doorstep.cli import columns
from doorstep.cli.options import Reason, Yes
from doorstep.cli.prompts import confirm
from doorstep.cli.remote import Paging, Rows, Session, gather, remote

app = typer.Typer(no_args_is_help=True, help="See, retry, approve, reject and delete the entities of pipelines.")

Pipeline = Annotated[str, typer.Argument(help="The pipeline's name.")]
EntityId = Annotated[str, typer.Argument(help="The entity's id.")]
Status = Annotated[str | None, typer.Option("--status", metavar="STATUS", help="Only those with this status.")]
Gate = Annotated[
    str | None, typer.Option("--gate", metavar="GATE", help="Only if it waits at this gate; else whichever it is.")
]
Archived = Annotated[bool, typer.Option("--archived", help="The archived ones too.")]


@remote(app)
def names(session: Session) -> None:
    """List the pipelines and their statuses."""
    page = session.client.pipelines.page()
    rows = Rows(list(page.items), page.pagination)
    rows.show(session.output, "pipelines", columns.PIPELINES, "The server's program declares no pipelines.")


@remote(app, "list")
def list_entities(
    session: Session, pipeline: Pipeline, paging: Paging, status: Status = None, archived: Archived = False
) -> None:
    """List entities, newest first.

    Example: `doorstep pipelines list protocol --status dead_letter`
    """
    client = session.client.pipelines
    rows = gather(lambda **query: client.entities(pipeline, **query), paging, status=status, archived=archived or None)
    rows.show(session.output, "entities", columns.ENTITIES, "There are none.")


@remote(app)
def show(session: Session, pipeline: Pipeline, entity_id: EntityId) -> None:
    """Show one as it stands."""
    session.output.answer(session.client.pipelines.read(pipeline, entity_id))


@remote(app)
def history(session: Session, pipeline: Pipeline, entity_id: EntityId) -> None:
    """Show every change of its status, oldest first."""
    page = session.client.pipelines.history(pipeline, entity_id)
    rows = Rows(list(page.items), page.pagination)
    rows.show(session.output, "history", columns.ENTITY_HISTORY, "There is nothing.")


@remote(app)
def retry(session: Session, pipeline: Pipeline, entity_id: EntityId, reason: Reason = None) -> None:
    """Send a failed, dead or archived one through again from the start."""
    done = session.client.pipelines.retry(pipeline, entity_id, reason=reason)
    session.output.line(done, f"{entity_id}  {done['status']}")


@remote(app)
def approve(session: Session, pipeline: Pipeline, entity_id: EntityId, gate: Gate = None) -> None:
    """Let one through the gate that it waits at."""
    done = session.client.pipelines.approve(pipeline, entity_id, gate=gate)
    session.output.line(done, f"{entity_id}  {done.status}")


@remote(app)
def reject(session: Session, pipeline: Pipeline, entity_id: EntityId, reason: Reason = None, gate: Gate = None) -> None:
    """Send one from the gate that it waits at to the dead letters."""
    done = session.client.pipelines.reject(pipeline, entity_id, reason=reason, gate=gate)
    session.output.line(done, f"{entity_id}  {done.status}")


@remote(app)
def delete(session: Session, pipeline: Pipeline, entity_id: EntityId, yes: Yes = False) -> None:
    """Remove one and its history, in whatever status."""
    confirm(session.output, f"Delete {pipeline} {entity_id} and its history?", yes)
    session.client.pipelines.delete(pipeline, entity_id)
    session.output.line({"entity_id": entity_id, "deleted": True}, f"{entity_id}  deleted")
