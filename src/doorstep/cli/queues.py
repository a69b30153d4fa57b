"""`doorstep retry-queue`, `dead-letters` and `bulk`. `endpoints replay` also uses `start`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from doorstep.cli.commands import ExitCode, Paging, Session, none_of, remote
from doorstep.cli.options import (
    DurationSeconds,
    EventType,
    OfEndpoint,
    Reason,
    Since,
    Until,
    Yes,
    flag,
    option,
    read_payload,
    without_none,
)
from doorstep.cli.output import columns, progress_bar
from doorstep.errors import ConfigError
from doorstep.schemas.deliveries import DeadStatus, QueueStatus

if TYPE_CHECKING:
    from doorstep.client import Client, Selection
    from doorstep.schemas.bulk import Bulk, Preview

retry_queue = typer.Typer()
dead_letters = typer.Typer()
bulk = typer.Typer()


# -- acting on deliveries ----------------------------------------------------------------------------------

_IDS_MAX = 1_000
_WATCH_SECONDS_MAX = 10 * 365 * 86_400.0


class SelectionOptions(NamedTuple):
    """The options that select deliveries: either ids or --all. Each command adds its own filter options."""

    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="These deliveries.", show_default=False)] = None
    everything: Annotated[bool, flag("--all", "All of them.")] = False

    def selection(self, filters: Mapping[str, object]) -> Selection:
        """The selection, given as exactly one of ids, filters and --all. An empty selection never means everything."""
        from doorstep.client import Selection

        given = without_none(filters)
        if [bool(self.ids), bool(given), self.everything].count(True) != 1:
            raise ConfigError(
                "select deliveries by exactly one of: ids, filters (such as --type or --endpoint), or --all"
            )
        if self.ids and len(self.ids) > _IDS_MAX:
            raise ConfigError(f"at most {_IDS_MAX} ids per command, got {len(self.ids)}; use filters instead")
        if self.ids:
            return Selection.of(self.ids)
        return Selection.where(**given) if given else Selection.everything()


class BulkOptions(NamedTuple):
    """The options of every bulk action."""

    rate: Annotated[float | None, option("--rate", "N", "At most N deliveries per second.", min=0.001)] = None
    reason: Reason = None
    preview: Annotated[bool, flag("--preview", "Only show how many deliveries would be affected, per endpoint.")] = (
        False
    )
    yes: Yes = False
    no_wait: Annotated[bool, flag("--no-wait", "Start the operation, and do not wait for it to finish.")] = False


class Action(NamedTuple):
    """An action on deliveries."""

    name: str
    done: str
    """The message that reports the result for one delivery."""
    one: Callable[..., object]
    """Acts on a single delivery immediately. Takes the delivery id, and the reason as a keyword argument."""
    many: Callable[..., Bulk]
    """Starts a bulk operation."""
    preview: Callable[[Selection], Preview]
    final: bool = False
    """Whether the action cannot be undone. If so, it needs confirmation even if ids are given."""


def act(
    session: Session,
    selected: SelectionOptions,
    filters: Mapping[str, object],
    action: Action,
    options: BulkOptions,
    **more: Any,
) -> int:
    """Act on a single delivery immediately, or on several deliveries as a bulk operation."""
    ids = [session.whole_id("delivery_id", one) for one in selected.ids or ()]
    selection = selected._replace(ids=ids or None).selection(filters)
    if len(ids) == 1 and not options.preview:
        if action.final:
            session.output.confirm(f"{action.name.capitalize()} {ids[0]}?", options.yes)
        session.output.line(action.one(ids[0], reason=options.reason), f"{ids[0]}  {action.done}")
        return ExitCode.OK
    # Deliveries named by id were chosen one by one and need no confirmation. A filter may match more than intended.
    needs_confirmation = action.final or not ids
    return start(
        session,
        action.name,
        lambda: action.preview(selection),
        lambda: action.many(selection, rate_per_second=options.rate, reason=options.reason, **more),
        options._replace(yes=options.yes or not needs_confirmation),
    )


def _query(session: Session, filters: DeadLetterFilters | QueueFilters) -> dict[str, object]:
    """The filters of an API request. An endpoint may be given by its name."""
    return filters._asdict() | {"endpoint_id": session.endpoint_id(filters.endpoint_id)}


def start(
    session: Session, name: str, preview: Callable[[], Preview], begin: Callable[[], Bulk], options: BulkOptions
) -> int:
    """Preview a bulk operation, ask for confirmation, start it, and watch it unless --no-wait is given."""
    if options.preview:
        affected = preview()
        session.output.line(affected, _summary(affected))
        return ExitCode.OK
    if not options.yes:
        affected = preview()
        session.output.note(_summary(affected))
        session.output.confirm(f"{name.capitalize()} {_count(affected)} of them?", yes=False)
    begun = begin()
    if not options.no_wait:
        return _watch(session, str(begun.bulk_id))
    session.output.line(begun, f"{begun.bulk_id}  {begun.state}; watch it with `doorstep bulk watch {begun.bulk_id}`")
    return ExitCode.OK


def _summary(affected: Preview) -> str:
    endpoints = ", ".join(f"{one.endpoint_name} {one.count}" for one in affected.endpoints)
    return f"{_count(affected)} selected" + (f": {endpoints}" if endpoints else "")


def _count(affected: Preview) -> str:
    return f"{'more than ' if affected.count_is_floor else ''}{affected.count}"


# -- retry queue -------------------------------------------------------------------------------------------


class QueueFilters(NamedTuple):
    """The filters of the retry queue, with the same names as in the API."""

    status: Annotated[QueueStatus | None, flag("--status", "Only waiting deliveries, or only those in progress.")] = (
        None
    )
    event_type: EventType = None
    endpoint_id: OfEndpoint = None
    older_than_seconds: Annotated[
        float | None,
        option("--older-than", "SPAN", "Only those that first failed at least this long ago: 1h", DurationSeconds),
    ] = None


_QUEUED = columns(
    "delivery_id event_type endpoint_name error retry_count next_retry_at",
    spare="state reason",
    reason=lambda one: one.held.reason if one.held else one.error_reason,
)


@remote(retry_queue, "list")
def list_queue(session: Session, filters: QueueFilters, paging: Paging) -> None:
    """List the retry queue, the next retry first.

    Example: `doorstep retry-queue list --endpoint shop --older-than 1h`
    """
    query = _query(session, filters)
    page = paging.fetch(session.client.retry_queue.page, **query)
    empty = none_of("deliveries waiting for a retry", paging, "No deliveries wait for a retry.", **query)
    session.show_page(page, "deliveries", _QUEUED, empty)


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


# -- dead letters ------------------------------------------------------------------------------------------

_DEAD_LETTERS = columns(
    "delivery_id event_type endpoint_name error retry_count", spare="first_failed_at cause error_reason"
)
_GROUPS = columns(
    "cause count endpoint_name error_code error_reason",
    spare="last",
    count=lambda one: f"{one.count}{'+' if one.count_is_floor else ''}",
    last="last_died_at",
)


class DeadLetterFilters(NamedTuple):
    """The filters of dead letters, with the same names as in the API."""

    status: Annotated[DeadStatus | None, flag("--status", "Only open dead letters, or only archived ones.")] = None
    event_type: EventType = None
    endpoint_id: OfEndpoint = None
    cause: Annotated[str | None, option("--cause", "CAUSE", "Only this cause; `groups` lists the causes.")] = None
    since: Since = None
    until: Until = None


@remote(dead_letters, "list")
def list_dead_letters(session: Session, filters: DeadLetterFilters, paging: Paging) -> None:
    """List dead letters, newest first.

    Example: `doorstep dead-letters list --endpoint shop --since 1d`
    """
    query = _query(session, filters)
    page = paging.fetch(session.client.dead_letters.page, **query)
    empty = "" if page else none_of("dead letters", paging, "", **query) or _no_dead_letters(session.client)
    session.show_page(page, "dead_letters", _DEAD_LETTERS, empty)


def _no_dead_letters(client: Client) -> str:
    """Without dead letters, there may still be failures that are retried."""
    stats = client.stats()
    healthy = not stats.deliveries["retrying"] and not stats.circuits_open
    return "No failed events. All integrations healthy." if healthy else "No dead letters."


@remote(dead_letters)
def groups(session: Session) -> None:
    """Group dead letters by cause. Hundreds of them often share a few causes."""
    page = session.client.dead_letters.groups()
    session.show_page(page, "groups", _GROUPS, "" if page else _no_dead_letters(session.client))


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
        bool,
        flag("--canary", "Retry one dead letter of each cause first, and the others only if it succeeds."),
    ] = False,
) -> int:
    """Retry dead letters with their retry count reset: one, several, those that match a filter, or all.

    Examples: `doorstep dead-letters retry 0193…`, `doorstep dead-letters retry --cause 1f3a… --canary --rate 50`,
    `doorstep dead-letters retry 0193… --payload @corrected.json`
    """
    client = session.client.dead_letters
    retry_one: Callable[..., object] = client.retry
    if payload is not None:
        if len(selected.ids or []) != 1:
            raise ConfigError(f"--payload is for one dead letter, got {len(selected.ids or [])} ids; give exactly one")
        retry_one = partial(client.edit_and_retry, payload=read_payload("--payload", payload))
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


# -- bulk operations ---------------------------------------------------------------------------------------

BulkId = Annotated[str, typer.Argument(help="The id of the bulk operation.")]

_BULK = columns("bulk_id kind state progress", spare="actor created_at note")


@remote(bulk, "list")
def list_bulk(session: Session, paging: Paging) -> None:
    """List bulk operations, newest first."""
    session.show_page(paging.fetch(session.client.bulk.page), "bulk", _BULK, "There are no bulk operations.")


@remote(bulk)
def show(session: Session, bulk_id: BulkId) -> None:
    """Show the progress of a bulk operation."""
    session.output.answer(session.client.bulk.read(bulk_id))


@remote(bulk)
def watch(session: Session, bulk_id: BulkId) -> int:
    """Watch a bulk operation until it ends. The exit code is 1 if a delivery failed or the operation was cancelled."""
    return _watch(session, bulk_id)


@remote(bulk)
def pause(session: Session, bulk_id: BulkId) -> None:
    """Pause a bulk operation."""
    _show_state(session, session.client.bulk.pause(bulk_id))


@remote(bulk)
def resume(session: Session, bulk_id: BulkId) -> None:
    """Continue a paused bulk operation."""
    _show_state(session, session.client.bulk.resume(bulk_id))


@remote(bulk)
def cancel(session: Session, bulk_id: BulkId) -> None:
    """Stop a bulk operation. Actions already taken are not undone."""
    _show_state(session, session.client.bulk.cancel(bulk_id))


@remote(bulk)
def failures(session: Session, bulk_id: BulkId, paging: Paging) -> None:
    """List the deliveries that failed again."""
    page = paging.fetch(lambda **query: session.client.bulk.failures(bulk_id, **query))
    session.show_page(page, "deliveries", _QUEUED, "No delivery failed again.")


def _watch(session: Session, bulk_id: str) -> int:
    try:
        with progress_bar(session.output) as show:
            ended = session.client.bulk.wait(bulk_id, _WATCH_SECONDS_MAX, on_progress=show)
    except KeyboardInterrupt:
        session.output.note(
            f"It continues; see `doorstep bulk watch {bulk_id}` or stop it with `doorstep bulk cancel {bulk_id}`"
        )
        raise
    _show_state(session, ended)
    return ExitCode.OK if ended.state == "finished" and not ended.failed else ExitCode.FAILED


def _show_state(session: Session, bulk: Bulk) -> None:
    refused = f", {bulk.refused} refused" if bulk.refused else ""
    note = f"; {bulk.note}" if bulk.note else ""
    session.output.line(bulk, f"{bulk.bulk_id}  {bulk.state}: {bulk.progress}{refused}{note}")
