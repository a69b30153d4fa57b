"""`doorstep pipelines` and `doorstep batches`."""

from __future__ import annotations

from typing import Annotated

import typer

from doorstep.cli.commands import Paging, Session, remote
from doorstep.cli.events import attempt_reason
from doorstep.cli.options import EventType, Reason, Yes, option
from doorstep.cli.output import columns
from doorstep.schemas.batches import BatchStatus

pipelines = typer.Typer()
batches = typer.Typer()


# -- pipelines ---------------------------------------------------------------------------------------------

Pipeline = Annotated[str, typer.Argument(help="The pipeline's name.")]
EntityId = Annotated[str, typer.Argument(help="The entity's id.")]
Gate = Annotated[str | None, option("--gate", "GATE", "Only if it waits at this gate. [default: any gate]")]

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
    """Show every change of its status, oldest first."""
    page = session.client.pipelines.history(pipeline, entity_id)
    session.show_page(page, "history", _HISTORY, "It has no history.")


@remote(pipelines)
def retry(session: Session, pipeline: Pipeline, entity_id: EntityId, reason: Reason = None) -> None:
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


@remote(pipelines)
def delete(session: Session, pipeline: Pipeline, entity_id: EntityId, yes: Yes = False) -> None:
    """Delete an entity and its history, whatever its status."""
    session.output.confirm(f"Delete {pipeline} {entity_id} and its history?", yes)
    session.client.pipelines.delete(pipeline, entity_id)
    session.output.line({"entity_id": entity_id, "deleted": True}, f"{entity_id}  deleted")


# -- batches -----------------------------------------------------------------------------------------------

BatchId = Annotated[str, typer.Argument(help="The batch's id, which is also the id of its event.")]

_BATCHES = columns("batch_id event_type status attempts error_code next_retry_at", spare="created_at error_reason")
_SUBMISSIONS = columns(
    "no at error_code reason carrier_response", spare="next_retry_at", no="number", reason=attempt_reason
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
    """Show its carrier log: every submission with the carrier's response."""
    page = session.client.batches.attempts(batch_id)
    session.show_page(page, "attempts", _SUBMISSIONS, "It has not been submitted yet.")


@remote(batches)
def resubmit(session: Session, batch_id: BatchId, reason: Reason = None) -> None:
    """Submit a FAILED batch again, at once and with its retry count reset.

    Example: `doorstep batches resubmit 0193… --reason 'the carrier is back'`
    """
    batch = session.client.batches.resubmit(batch_id, reason=reason)
    session.output.line(batch, f"Batch {batch.batch_id} is {batch.status} again.")
