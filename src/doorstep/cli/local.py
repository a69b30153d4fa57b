"""Commands that need no server: they start Doorstep, check it, or work on its database directly.

Modules that are slow to load are imported when a command runs, so that help and completion stay fast.
"""

from __future__ import annotations

import asyncio
import gc
import getpass
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer
from msgspec.structs import asdict

from doorstep import __version__
from doorstep.cli.commands import end, local
from doorstep.cli.listening import listener
from doorstep.cli.options import (
    Database,
    DurationSeconds,
    Host,
    Limit,
    Port,
    Reason,
    Share,
    Workers,
    Yes,
    flag,
    option,
    settings_from,
)
from doorstep.cli.output import Output, columns
from doorstep.cli.service_manager import passed_socket
from doorstep.clock import AnchoredClock, from_datetime, to_iso
from doorstep.config import Settings, setting_rows
from doorstep.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from doorstep.operations.outbox import OutboxService
    from doorstep.schemas.events import RejectedMessage
    from doorstep.stores.store import Store

commands = typer.Typer()
outbox = typer.Typer()

App = Annotated[
    str | None,
    option(
        "--app",
        "MODULE:NAME",
        "Your own Doorstep with its handlers, as module:name; the module is imported from this folder.",
    ),
]
Isolate = Annotated[
    bool,
    flag(
        "--isolate", "Run every handler of --app in separate processes: a crash, hang or memory leak costs one attempt."
    ),
]


# -- running -----------------------------------------------------------------------------------------------


@commands.command()
def serve(
    host: Host = None,
    port: Port = None,
    database: Database = None,
    workers: Workers = None,
    app: App = None,
    isolate: Isolate = False,
) -> None:
    """Run the HTTP API and a worker in one process, and more worker processes if configured.

    Example: `doorstep serve --database postgresql://doorstep@db/doorstep --workers 3`
    """
    # Garbage collection is off until startup is complete: imports and routes create objects that are never freed.
    # Scanning these objects took 0.16 s of CPU, the median of six starts under load.
    gc.disable()
    given = {"host": host, "port": port, "database_url": database, "workers": workers}

    def run() -> int:
        settings = settings_from(**given)
        # The imports and the start take most of a second. Clients wait that long, instead of being refused.
        with passed_socket() or listener(settings.host, settings.port) as listening:
            from doorstep.cli import serve as program  # may need an extra that is not installed, which `end` reports

            return program.serve(settings, listening, given, app, isolate=isolate)

    end(run)


@commands.command()
def worker(
    database: Database = None,
    app: App = None,
    isolate: Isolate = False,
    end_with_parent: Annotated[bool, typer.Option("--end-with-parent", hidden=True)] = False,
) -> None:
    """Run a worker, which delivers events. Any number of workers can share one database.

    Example: `doorstep worker --app shop.events:doorstep`
    """
    gc.disable()  # as in `serve`
    from doorstep.cli import run

    end(lambda: run.work({"database_url": database}, app, isolate=isolate, end_with_parent=end_with_parent))


@local(commands)
def demo(
    output: Output,
    port: Annotated[
        int | None,
        option("--port", "PORT", "The port. [default: 8080, or a free one if that is taken]", min=0, max=65_535),
    ] = None,
    rate: Annotated[float, option("--rate", "N", "How many events to send per second.", min=0.01, max=1_000)] = 3,
    keep: Annotated[bool, flag("--keep", "Keep the data in ./doorstep-demo, and continue with it next time.")] = False,
) -> int:
    """Start a demo: a small shop with healthy, flaky, slow and broken receivers, and steady traffic.

    Within a minute there are retries, dead letters of several causes, an open circuit, text messages in batches, bills in
    a pipeline, alerts, and simulated operators who handle them.
    """
    from doorstep.cli.demo import run_demo

    return run_demo(output, port, rate, keep)


_NO_DELAY: Any = "0s"
"""A string, because the option's parser is also applied to the default."""


@local(commands)
def listen(
    output: Output,
    host: Annotated[str, option("--host", "HOST", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "PORT", "The port; 0 picks a free one.", min=0, max=65_535)] = 9_000,
    secret: Annotated[
        list[str] | None,
        option("--secret", "SECRET", "A whsec_… secret (or whpk_… key) to verify signatures with; repeatable."),
    ] = None,
    fail: Annotated[float | None, option("--fail", "SHARE", "Fail this share of requests: 30%", Share)] = None,
    status: Annotated[
        int | None,
        option("--status", "CODE", "The status of failed requests; without --fail, of all requests.", min=200, max=599),
    ] = None,
    slow: Annotated[float, option("--slow", "SPAN", "Delay every response: 5s", DurationSeconds)] = _NO_DELAY,
    headers: Annotated[bool, flag("--headers", "Also print the headers of requests.")] = False,
    count: Annotated[int | None, option("--count", "N", "Stop after N requests.", min=1)] = None,
) -> int:
    """Receive webhooks on this machine: print requests, check signatures, simulate failures and delays.

    With --secret, a request without a valid signature gets a 401, as it should from any receiver.

    Example: `doorstep listen --secret whsec_… --fail 30% --slow 2s`
    """
    from doorstep.cli import listen as program

    fail_share = (0.0 if status is None else 1.0) if fail is None else fail
    behaviour = program.Behaviour(status or 503, fail_share, slow)
    return program.listen(output, host, port, secret or (), behaviour, show_headers=headers, requests_max=count)


@local(commands)
def new(
    output: Output,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that does not exist yet, or is empty.")],
    profile: Annotated[str, option("--profile", "NAME", "The profile, such as triggers.")],
) -> None:
    """Write the program of a profile into a new folder, as the start of a service of your own.

    Example: `doorstep new my_service --profile triggers`
    """
    from doorstep.cli.new import create

    written = create(profile, folder)
    output.line(
        {"folder": str(folder), "files": [path.name for path in written]},
        f"{folder} has the program of the profile {profile}. To start it with a simulated receiver:\n\n"
        f"  cd {folder} && python .\n",
    )


# -- checking and preparing --------------------------------------------------------------------------------


@local(commands)
def migrate(
    output: Output,
    database: Database = None,
    users: Annotated[
        str | None,
        option(
            "--grant-users", "ROLE", "PostgreSQL: also let the members of this database role read and act with SQL."
        ),
    ] = None,
) -> int:
    """Update the database tables to this version. Does nothing if they are up to date."""
    from doorstep.cli import run

    return run.migrate(settings_from(database_url=database), output, users)


@local(commands, "adopt-key")
def adopt_key(output: Output, database: Database = None, yes: Yes = False) -> None:
    """Make DOORSTEP_SECRET_KEY the key of the database, if the old key is lost. Stop all processes first.

    Secrets that the old key encrypted stay unreadable, so nothing is sent to their endpoints. For each endpoint, set its
    headers again if it has any, and then run `doorstep endpoints rotate-secret --overlap 0s`. Create the alert channels
    again.
    """

    async def command(store: Store, settings: Settings) -> None:
        from doorstep.bootstrap import adopt_key

        output.confirm("Give up all secrets that another key encrypted?", yes)
        await adopt_key(store, settings)
        output.line({"adopted": True}, "The database has this key now.")

    asyncio.run(_with_store(database, command))


@local(commands)
def doctor(output: Output, database: Database = None) -> int:
    """Check settings, port, disk, database, secret key, clock and the connection to every endpoint.

    For each problem, it prints a remedy. It changes nothing. The exit code is 1 if there is a problem.
    """
    from doorstep.cli import doctor as program

    return program.check_all(database, output)


@local(commands)
def settings(output: Output) -> None:
    """List every setting with its variable, its allowed values and its default."""
    if output.as_json:
        output.json({"settings": [row._asdict() for row in setting_rows()]})
        return
    for row in setting_rows():
        default = f", by default {row.default}" if row.default else ""
        typer.echo(f"{row.variable}\n    {row.about}\n    Must be {row.rule}{default}.\n")


@local(commands)
def version(output: Output) -> None:
    """Print the version."""
    output.line({"version": __version__}, f"doorstep {__version__}")


# -- outbox ------------------------------------------------------------------------------------------------

EventIds = Annotated[
    list[UUID] | None, typer.Argument(metavar="EVENT_ID…", help="Ids of events; `outbox list` shows them.")
]
All = Annotated[bool, flag("--all", "All rejected messages, up to a thousand.")]
_ALL_MAX = 1_000
_COLUMNS = columns("event_id event_type rejected why", rejected="refused_at", why="refusal")
OutboxCommand = Callable[["OutboxService"], Awaitable[None]]


@local(outbox, "list")
def list_rejected(output: Output, database: Database = None, limit: Limit = 50) -> None:
    """List rejected messages, oldest first, each with the reason why it cannot be accepted."""

    async def command(service: OutboxService) -> None:
        rows = [_as_json(message) for message in await service.refused(limit)]
        output.listing({"refused": rows}, rows, _COLUMNS, "There are no rejected messages.")

    asyncio.run(_with_outbox(database, command))


@local(outbox)
def retry(
    output: Output, event_ids: EventIds = None, every: All = False, reason: Reason = None, database: Database = None
) -> None:
    """Requeue rejected messages, after you have removed the cause of their rejection.

    Example: `doorstep outbox retry --all --reason "the endpoint exists now"`
    """

    async def command(service: OutboxService) -> None:
        chosen = await _chosen(service, event_ids, every)
        _report(output, "requeued", chosen, await service.retry(chosen, _actor(), reason or ""))

    asyncio.run(_with_outbox(database, command))


@local(outbox)
def discard(
    output: Output,
    event_ids: EventIds = None,
    every: All = False,
    reason: Reason = None,
    yes: Yes = False,
    database: Database = None,
) -> None:
    """Remove messages permanently. Their events will never be delivered."""

    async def command(service: OutboxService) -> None:
        chosen = await _chosen(service, event_ids, every)
        output.confirm(f"Remove {len(chosen)} rejected messages?", yes)
        _report(output, "removed", chosen, await service.discard(chosen, _actor(), reason or ""))

    asyncio.run(_with_outbox(database, command))


async def _with_outbox(database: str | None, command: OutboxCommand) -> None:
    """Run an outbox command. A secret key is not needed, but a wrong one means that this is the wrong database."""
    from doorstep.bootstrap import DEFAULT_ORG, check_key, key_path, sealer_for
    from doorstep.operations.outbox import OutboxService

    async def work(store: Store, settings: Settings) -> None:
        file = key_path(settings)
        if settings.secret_key is not None or (file is not None and file.exists()):
            await check_key(store, settings, sealer_for(settings))
        clock = AnchoredClock()
        clock.follow(await store.time())
        await command(OutboxService(store, clock, DEFAULT_ORG))

    await _with_store(database, work)


async def _with_store(database: str | None, command: Callable[[Store, Settings], Awaitable[None]]) -> None:
    """Run a command directly on the database, so that no server needs to be running."""
    from doorstep.bootstrap import pinned
    from doorstep.cli.run import naming_database
    from doorstep.stores.open import store_from_url

    settings = settings_from(database_url=database)
    store = store_from_url(pinned(settings).database_url)
    with naming_database(settings):
        await store.open()
    try:
        await command(store, settings)
    finally:
        await store.close()


async def _chosen(service: OutboxService, event_ids: Sequence[UUID] | None, every: bool) -> list[UUID]:
    if bool(event_ids) == every:
        raise ConfigError("select messages by exactly one of: their event ids, or --all")
    return list(event_ids or ()) or [message.event_id for message in await service.refused(_ALL_MAX)]


def _report(output: Output, result: str, chosen: Sequence[UUID], done: Sequence[UUID]) -> None:
    if not done:
        raise NotFound("none of these messages is rejected; `doorstep outbox list` shows those that are")
    for event_id in chosen:
        outcome = result if event_id in done else "not rejected"
        output.line({"event_id": event_id, "done": event_id in done}, f"{event_id}  {outcome}")


def _as_json(message: RejectedMessage) -> dict[str, object]:
    times = {"created_at": message.created_at, "refused_at": message.refused_at}
    return asdict(message) | {name: to_iso(from_datetime(at)) for name, at in times.items()}


def _actor() -> str:
    """The name of the operating system user, for the audit log."""
    return f"cli:{getpass.getuser()}"
