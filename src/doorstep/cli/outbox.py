"""`doorstep outbox`: what was set aside in the outbox. It works on the database itself, whether anything runs or not."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from doorstep.cli.exits import exit_code_of
from doorstep.cli.options import Database, Json, Limit, Reason, Yes, output_for, settings_from
from doorstep.cli.output import Column, Output
from doorstep.cli.prompts import confirm
from doorstep.clock import AnchoredClock, to_iso
from doorstep.config import Settings
from doorstep.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from doorstep.model.outbox import OutboxMessage
    from doorstep.operations.outbox import OutboxService

app = typer.Typer(no_args_is_help=True, help="See, put back or remove what was set aside in the outbox.")

EventIds = Annotated[
    list[UUID] | None, typer.Argument(metavar="EVENT_ID…", help="The ids of the events; `outbox list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="All that are set aside, up to a thousand.")]
_ALL_MAX = 1_000
_COLUMNS = (
    Column("event", "event_id", whole=True),
    Column("type", "event_type"),
    Column("set aside", "refused_at"),
    Column("why", "refusal"),
)


@app.command("list")
def list_refused(database: Database = None, limit: Limit = 50, as_json: Json = False) -> None:
    """List what can never be accepted as it is, the oldest first, with the reason."""

    async def command(outbox: OutboxService, output: Output) -> None:
        rows = [_shown(posting) for posting in await outbox.refused(limit)]
        output.listing({"refused": rows}, rows, _COLUMNS, "Nothing is set aside.")

    _end(database, as_json, command)


@app.command()
def retry(
    event_ids: EventIds = None,
    every: All = False,
    reason: Reason = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Put events back, once what kept them from being accepted is repaired.

    Example: `doorstep outbox retry --all --reason "the endpoint is there now"`
    """

    async def command(outbox: OutboxService, output: Output) -> None:
        chosen = await _chosen(outbox, event_ids, every)
        _tell(output, "put back", chosen, await outbox.retry(chosen, _actor(), reason or ""))

    _end(database, as_json, command)


@app.command()
def discard(
    event_ids: EventIds = None,
    every: All = False,
    reason: Reason = None,
    yes: Yes = False,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Remove events for good: nobody will ever receive them."""

    async def command(outbox: OutboxService, output: Output) -> None:
        chosen = await _chosen(outbox, event_ids, every)
        confirm(output, f"Remove {len(chosen)} of the events that were set aside?", yes)
        _tell(output, "removed", chosen, await outbox.discard(chosen, _actor(), reason or ""))

    _end(database, as_json, command)


def _end(database: str | None, as_json: bool, command: Callable[[OutboxService, Output], Awaitable[None]]) -> None:
    settings, output = settings_from(database_url=database), output_for(as_json)
    raise typer.Exit(exit_code_of(lambda: asyncio.run(_with_outbox(settings, output, command))))


async def _with_outbox(
    settings: Settings, output: Output, command: Callable[[OutboxService, Output], Awaitable[None]]
) -> None:
    from doorstep.bootstrap import DEFAULT_ORG, pinned  # here, so that help and completion are quick
    from doorstep.cli.run import naming_database
    from doorstep.operations.outbox import OutboxService
    from doorstep.stores.open import store_from_url

    store = store_from_url(pinned(settings).database_url)
    with naming_database(settings):
        await store.open()
    try:
        clock = AnchoredClock()
        clock.follow(await store.time())
        await command(OutboxService(store, clock, DEFAULT_ORG), output)
    finally:
        await store.close()


async def _chosen(outbox: OutboxService, event_ids: Sequence[UUID] | None, every: bool) -> list[UUID]:
    if bool(event_ids) == every:
        raise ConfigError("which events? name them by their ids, or say --all")
    return list(event_ids or ()) or [posting.event_id for posting in await outbox.refused(_ALL_MAX)]


def _tell(output: Output, word: str, chosen: Sequence[UUID], done: Sequence[UUID]) -> None:
    if not done:
        raise NotFound("none of these events is set aside; `doorstep outbox list` shows those that are")
    for event_id in chosen:
        was = word if event_id in done else "not set aside"
        output.line({"event_id": event_id, "done": event_id in done}, f"{event_id}  {was}")


def _shown(posting: OutboxMessage) -> dict[str, object]:
    return {
        "event_id": posting.event_id,
        "org_id": posting.org_id,
        "event_type": posting.event_type,
        "created_at": to_iso(posting.created_at),
        "refused_at": None if posting.refused_at is None else to_iso(posting.refused_at),
        "refusal": posting.refusal,
    }


def _actor() -> str:
    """Who did it, for the audit log."""
    return f"cli:{getpass.getuser()}"
