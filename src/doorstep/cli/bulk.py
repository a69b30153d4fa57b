"""`doorstep bulk`, and the part that all bulk actions share: select, confirm, start, watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from doorstep.cli.commands import ExitCode, Paging, Session, remote
from doorstep.cli.options import Reason, Yes, option, without_none
from doorstep.cli.output import columns, progress_bar
from doorstep.errors import ConfigError

if TYPE_CHECKING:
    from doorstep.client import Selection
    from doorstep.schemas.bulk import Bulk, Preview

bulk = typer.Typer()

_IDS_MAX = 1_000
_WATCH_SECONDS_MAX = 10 * 365 * 86_400.0

BulkId = Annotated[str, typer.Argument(help="The id of the bulk operation.")]


class SelectionOptions(NamedTuple):
    """The options that select deliveries by id, or all of them. Each command adds its own filter options."""

    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="These deliveries.", show_default=False)] = None
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False

    def selection(self, filters: Mapping[str, object]) -> Selection:
        """The selection from exactly one of ids, filters and --all. An empty selection never means everything."""
        from doorstep.client import Selection

        given = without_none(filters)
        if [bool(self.ids), bool(given), self.everything].count(True) != 1:
            raise ConfigError(
                "select deliveries by exactly one of: ids, filters (such as --type or --endpoint), or --all"
            )
        if self.ids and len(self.ids) > _IDS_MAX:
            raise ConfigError(f"at most {_IDS_MAX} ids at once, got {len(self.ids)}; use filters instead")
        if self.ids:
            return Selection.of(self.ids)
        return Selection.where(**given) if given else Selection.everything()


class BulkOptions(NamedTuple):
    """The options of every bulk action."""

    rate: Annotated[float | None, option("--rate", "N", "At most N deliveries a second.", min=0.001)] = None
    reason: Reason = None
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show how many deliveries it affects, and of which endpoints.")
    ] = False
    yes: Yes = False
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Start it, and do not wait for it to finish.")] = False


class Action(NamedTuple):
    """An action on deliveries."""

    name: str
    done: str
    """The message that reports the result for one delivery."""
    one: Callable[..., object]
    """Acts on a single delivery at once. Takes its id, and the reason as a keyword argument."""
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
    """Act on one delivery at once, or on several as a bulk operation."""
    selection, ids = selected.selection(filters), selected.ids or []
    if len(ids) == 1 and not options.preview:
        if action.final:
            session.output.confirm(f"{action.name.capitalize()} {ids[0]}?", options.yes)
        session.output.line(action.one(ids[0], reason=options.reason), f"{ids[0]}  {action.done}")
        return ExitCode.OK
    # Ids were chosen one by one and need no confirmation. A filter may match more than intended.
    needs_confirmation = action.final or not ids
    return start(
        session,
        action.name,
        lambda: action.preview(selection),
        lambda: action.many(selection, rate_per_second=options.rate, reason=options.reason, **more),
        options._replace(yes=options.yes or not needs_confirmation),
    )


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


def _summary(affected: Preview) -> str:
    endpoints = ", ".join(f"{one.endpoint_name} {one.count}" for one in affected.endpoints)
    return f"{_count(affected)} selected" + (f": {endpoints}" if endpoints else "")


def _count(affected: Preview) -> str:
    return f"{'more than ' if affected.count_is_floor else ''}{affected.count}"


_COLUMNS = columns("bulk_id kind state progress", spare="actor created_at note")
QUEUED = columns(
    "delivery_id event_type endpoint_name error retry_count next_retry_at",
    spare="state reason",
    reason=lambda one: one.held or one.error_reason,
)


@remote(bulk, "list")
def list_bulk(session: Session, paging: Paging) -> None:
    """List bulk operations, newest first."""
    page = paging.fetch(session.client.bulk.page)
    session.show_page(page, "bulk", _COLUMNS, "There are no bulk operations.")


@remote(bulk)
def show(session: Session, bulk_id: BulkId) -> None:
    """Show the progress of a bulk operation."""
    session.output.answer(session.client.bulk.read(bulk_id))


@remote(bulk)
def watch(session: Session, bulk_id: BulkId) -> int:
    """Watch it until it ends. The exit code is 1 if a delivery failed or it was cancelled."""
    return _watch(session, bulk_id)


@remote(bulk)
def pause(session: Session, bulk_id: BulkId) -> None:
    """Pause it."""
    _show_state(session, session.client.bulk.pause(bulk_id))


@remote(bulk)
def resume(session: Session, bulk_id: BulkId) -> None:
    """Continue it after a pause."""
    _show_state(session, session.client.bulk.resume(bulk_id))


@remote(bulk)
def cancel(session: Session, bulk_id: BulkId) -> None:
    """Stop it. Actions already taken are not undone."""
    _show_state(session, session.client.bulk.cancel(bulk_id))


@remote(bulk)
def failures(session: Session, bulk_id: BulkId, paging: Paging) -> None:
    """List the deliveries that failed again."""
    page = paging.fetch(lambda **query: session.client.bulk.failures(bulk_id, **query))
    session.show_page(page, "deliveries", QUEUED, "Nothing failed.")
