"""`doorstep dead-letters` and `doorstep retry-queue`: deliveries that failed permanently, or will be retried."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from doorstep.cli.bulk import QUEUED, Action, BulkOptions, SelectionOptions, act
from doorstep.cli.commands import Paging, Session, remote
from doorstep.cli.options import DurationSeconds, EventType, OfEndpoint, Since, Until, option, read_payload
from doorstep.cli.output import columns
from doorstep.errors import ConfigError
from doorstep.schemas.deliveries import DeadStatus, QueueStatus

dead_letters = typer.Typer()
retry_queue = typer.Typer()

_NO_DEAD_LETTERS = "No failed events. All integrations healthy."
_DEAD_LETTERS = columns(
    "delivery_id event_type endpoint_name error retry_count", spare="first_failed_at cause error_reason"
)
_GROUPS = columns(
    "cause count endpoint_name error_code error_reason",
    spare="last",
    count=lambda one: f"{one.count}{'+' if one.count_is_floor else ''}",
    last="last_died_at",
)


# -- dead letters ------------------------------------------------------------------------------------------


class DeadLetterFilters(NamedTuple):
    """The filters of dead letters, with the same names as in the API."""

    status: Annotated[
        DeadStatus | None, typer.Option("--status", help="Open ones, or those archived after a week without action.")
    ] = None
    event_type: EventType = None
    endpoint_id: OfEndpoint = None
    cause: Annotated[str | None, option("--cause", "CAUSE", "Only this cause; `groups` lists the causes.")] = None
    died_from: Since = None
    died_before: Until = None


def _query(session: Session, filters: DeadLetterFilters | QueueFilters) -> dict[str, object]:
    return filters._asdict() | {"endpoint_id": session.endpoint_id(filters.endpoint_id)}


@remote(dead_letters, "list")
def list_dead_letters(session: Session, filters: DeadLetterFilters, paging: Paging) -> None:
    """List dead letters, newest first.

    Example: `doorstep dead-letters list --endpoint shop --since 1d`
    """
    page = paging.fetch(session.client.dead_letters.page, **_query(session, filters))
    session.show_page(page, "dead_letters", _DEAD_LETTERS, _NO_DEAD_LETTERS)


@remote(dead_letters)
def groups(session: Session) -> None:
    """Group dead letters by cause. Hundreds of them often share a few causes."""
    session.show_page(session.client.dead_letters.groups(), "groups", _GROUPS, _NO_DEAD_LETTERS)


@remote(dead_letters, "retry")
def retry_dead_letters(
    session: Session,
    selected: SelectionOptions,
    filters: DeadLetterFilters,
    options: BulkOptions,
    payload: Annotated[
        str | None, option("--payload", "PAYLOAD", "A new payload, for one id: JSON, @file, or - for stdin.")
    ] = None,
    canary: Annotated[
        bool, typer.Option("--canary", help="Try one of each cause first; retry the others only if it succeeds.")
    ] = False,
) -> int:
    """Retry dead letters with their retry count reset: one, several, those that match a filter, or all.

    Examples: `doorstep dead-letters retry 0193…`, `doorstep dead-letters retry --cause 1f3a… --canary --rate 50`,
    `doorstep dead-letters retry 0193… --payload @corrected.json`
    """
    client, edited = session.client.dead_letters, _edited(selected, payload)

    def retry_one(delivery_id: str, reason: str | None) -> object:
        if edited is None:
            return client.retry(delivery_id, reason=reason)
        return client.edit_and_retry(delivery_id, edited, reason=reason)

    action = Action("retry", "will be retried in a few seconds", retry_one, client.bulk_retry, client.preview)
    return act(session, selected, _query(session, filters), action, options, canary=canary or None)


@remote(dead_letters)
def resolve(session: Session, selected: SelectionOptions, filters: DeadLetterFilters, options: BulkOptions) -> int:
    """Mark dead letters as needing no delivery.

    Example: `doorstep dead-letters resolve --cause 1f3a… --reason 'delivered by hand'`
    """
    client = session.client.dead_letters
    action = Action("resolve", "is resolved", client.resolve, client.bulk_resolve, client.preview)
    return act(session, selected, _query(session, filters), action, options)


@remote(dead_letters)
def delete(session: Session, selected: SelectionOptions, filters: DeadLetterFilters, options: BulkOptions) -> int:
    """Delete dead letters. Their attempt logs are kept.

    Example: `doorstep dead-letters delete --status archived --yes`
    """
    client = session.client.dead_letters

    def delete_one(delivery_id: str, reason: str | None) -> object:
        client.delete(delivery_id)
        return {"delivery_id": delivery_id, "deleted": True}

    action = Action("delete", "is deleted", delete_one, client.bulk_delete, client.preview, final=True)
    return act(session, selected, _query(session, filters), action, options)


def _edited(selected: SelectionOptions, payload: str | None) -> bytes | None:
    if payload is None:
        return None
    if len(selected.ids or []) != 1:
        raise ConfigError(f"--payload is for one dead letter, got {len(selected.ids or [])} ids; give exactly one")
    return read_payload("--payload", payload)


# -- retry queue -------------------------------------------------------------------------------------------


class QueueFilters(NamedTuple):
    """The filters of the retry queue, with the same names as in the API."""

    status: Annotated[
        QueueStatus | None, typer.Option("--status", help="Only waiting deliveries, or only those in progress.")
    ] = None
    event_type: EventType = None
    endpoint_id: OfEndpoint = None
    older_than_seconds: Annotated[
        float | None, option("--older-than", "SPAN", "Only those that first failed this long ago: 1h", DurationSeconds)
    ] = None


@remote(retry_queue, "list")
def list_queue(session: Session, filters: QueueFilters, paging: Paging) -> None:
    """List deliveries, the next retry first.

    Example: `doorstep retry-queue list --endpoint shop --older-than 1h`
    """
    page = paging.fetch(session.client.retry_queue.page, **_query(session, filters))
    session.show_page(page, "deliveries", QUEUED, "Nothing waits for a retry.")


@remote(retry_queue, "retry")
def retry_queued(session: Session, selected: SelectionOptions, filters: QueueFilters, options: BulkOptions) -> int:
    """Retry deliveries now: one, several, those that match a filter, or all.

    Examples: `doorstep retry-queue retry 0193…`, `doorstep retry-queue retry --endpoint shop --rate 10`,
    `doorstep retry-queue retry --all --preview`
    """
    client = session.client.retry_queue
    action = Action("retry", "is due now", client.retry, client.bulk_retry, client.preview)
    return act(session, selected, _query(session, filters), action, options)


@remote(retry_queue)
def skip(session: Session, selected: SelectionOptions, filters: QueueFilters, options: BulkOptions) -> int:
    """Stop retrying deliveries and move them to the dead letters.

    Example: `doorstep retry-queue skip --type 'report.*' --reason 'obsolete'`
    """
    client = session.client.retry_queue
    action = Action("skip", "is a dead letter now", client.skip, client.bulk_skip, client.preview, final=True)
    return act(session, selected, _query(session, filters), action, options)
