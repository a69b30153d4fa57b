"""The commands of the machine that Doorstep runs on, and all groups of commands together.

Help texts come from the table of settings; heavy imports wait until a command needs them, so that help and shell
completion are quick.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from doorstep import __version__
from doorstep.cli import (
    accounts,
    alerts,
    batches,
    bulk,
    channels,
    console,
    dead_letters,
    deliveries,
    endpoints,
    events,
    outbox,
    pipelines,
    policies,
    retry_queue,
    send,
    stats,
    tail,
    workers,
)
from doorstep.cli.exits import EXIT_CODES_HELP, Run, exit_code_of
from doorstep.cli.options import (
    Database,
    Host,
    Json,
    Port,
    Workers,
    output_for,
    parsed_by,
    settings_from,
    share,
    span_seconds,
)
from doorstep.cli.remote import REMOTE_PANEL
from doorstep.config import setting_rows

app = typer.Typer(
    help="Doorstep delivers events to webhooks and handlers, retries with sense, and loses nothing.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["--help", "-h"]},
)

_HERE, _TRY = "On this machine", "To try it out"


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


App = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:NAME",
        help="Your own Doorstep with its handlers, as module:name, looked for from this folder.",
    ),
]
Isolate = Annotated[
    bool,
    typer.Option(
        "--isolate",
        help="Run every handler of --app in processes of its own: a crash, a hang or a memory hog costs one attempt.",
    ),
]
_AT_ONCE: Any = "0s"
"""The parser turns a default into a number, as it does with what is typed."""
EndWithParent = Annotated[bool, typer.Option("--end-with-parent", hidden=True)]


@app.command(rich_help_panel=_HERE)
def serve(
    host: Host = None,
    port: Port = None,
    database: Database = None,
    workers: Workers = None,
    app: App = None,
    isolate: Isolate = False,
) -> None:
    """Run everything in one process: the HTTP API and the delivering, plus more worker processes if asked.

    Example: `doorstep serve --database postgresql://doorstep@db/doorstep --workers 3`
    """
    from doorstep.cli import serve as serving

    said = {"host": host, "port": port, "database_url": database, "workers": workers}
    _end(lambda: serving.serve(settings_from(**said), app, isolate=isolate, said=said))


@app.command(rich_help_panel=_HERE)
def worker(
    database: Database = None, app: App = None, isolate: Isolate = False, end_with_parent: EndWithParent = False
) -> None:
    """Run a worker alone: it delivers what others accept. Any number of them share one database.

    Example: `doorstep worker --app shop.events:doorstep`
    """
    from doorstep.cli import worker as working

    said = {"database_url": database}
    ways = {"isolate": isolate, "end_with_parent": end_with_parent}
    _end(lambda: working.work(settings_from(**said), app, said=said, **ways))


@app.command(rich_help_panel=_HERE)
def migrate(database: Database = None, as_json: Json = False) -> None:
    """Bring the database's tables to this version; harmless when they are."""
    from doorstep.cli import run as migrating

    _end(lambda: migrating.migrate(settings_from(database_url=database), output_for(as_json)))


@app.command(rich_help_panel=_HERE)
def doctor(database: Database = None, as_json: Json = False) -> None:
    """Check settings, port, disk, database, secret key, clock and every endpoint's reach; say what to do.

    It changes nothing. The exit code is 1 if there is a problem.
    """
    from doorstep.cli import doctor as examining

    _end(lambda: examining.examine(database, output_for(as_json)))


@app.command(rich_help_panel=_HERE)
def settings(as_json: Json = False) -> None:
    """List every setting: its variable, its rule and its default."""
    if as_json:
        output_for(as_json).json({"settings": [row._asdict() for row in setting_rows()]})
        return
    for row in setting_rows():
        default = f", by default {row.default}" if row.default else ""
        typer.echo(f"{row.variable}\n    {row.about}\n    Must be {row.rule}{default}.\n")


@app.command(rich_help_panel=_HERE)
def version(as_json: Json = False) -> None:
    """Print the version."""
    output_for(as_json).line({"version": __version__}, f"doorstep {__version__}")


@app.command(rich_help_panel=_TRY)
def demo(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65_535,
            help="The port. [default: 8080, or a free one if that is taken]",
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", min=0.01, max=1_000, help="So many events a second.")
    ] = 3,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data in ./doorstep-demo, and go on with it.")] = False,
    as_json: Json = False,
) -> None:
    """Start a Doorstep with the systems of a small shop around it (healthy, flaky, slow, down) and steady traffic.

    Within a minute there are retries, dead letters of several causes, an open circuit, text messages in batches, bills in
    a pipeline, alerts, and people who see to all that.
    """
    from doorstep.cli.demo import program

    _end(lambda: program.demonstrate(program.Demo(port, rate, keep), output_for(as_json)))


@app.command(rich_help_panel=_TRY)
def listen(
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = 9_000,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="SECRET",
            help="A whsec_… secret (or whpk_… key) that signatures are checked with; repeatable.",
        ),
    ] = None,
    fail: Annotated[
        float | None, typer.Option("--fail", metavar="SHARE", parser=parsed_by(share), help="Let so many fail: 30%")
    ] = None,
    status: Annotated[
        int | None,
        typer.Option(
            "--status", metavar="CODE", min=200, max=599, help="The answer to those that fail (all, without --fail)."
        ),
    ] = None,
    slow: Annotated[
        float, typer.Option("--slow", metavar="SPAN", parser=parsed_by(span_seconds), help="Answer so late: 5s")
    ] = _AT_ONCE,
    headers: Annotated[bool, typer.Option("--headers", help="Show the request's headers too.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="End after so many requests.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Receive webhooks on this machine: print what arrives, check its signature, fail or dawdle on request.

    What was not signed with the secret is answered with 401, as a careful receiver does.

    Example: `doorstep listen --secret whsec_… --fail 30% --slow 2s`
    """
    from doorstep.cli import listen as listening
    from doorstep.cli.listen import Behaviour

    behaviour = Behaviour(status or 503, (0.0 if status is None else 1.0) if fail is None else fail, slow)
    told = listening.Listening(host, port, tuple(secret or ()), behaviour, headers, count)
    _end(lambda: listening.listen(told, output_for(as_json)))


app.add_typer(outbox.app, name="outbox", rich_help_panel=_HERE)
app.add_typer(policies.app, name="policy", rich_help_panel=_TRY)
app.add_typer(send.app)
app.add_typer(tail.app)
app.add_typer(console.app)
for name, group in {
    "events": events.events,
    "inbox": events.inbox,
    "deliveries": deliveries.app,
    "endpoints": endpoints.app,
    "retry-queue": retry_queue.app,
    "dead-letters": dead_letters.app,
    "bulk": bulk.app,
    "pipelines": pipelines.app,
    "batches": batches.app,
    "slo": stats.slo,
    "alerts": alerts.alerts,
    "alert-rules": alerts.rules,
    "silences": alerts.silences,
    "channels": channels.channels,
    "keys": accounts.keys,
    "orgs": accounts.orgs,
}.items():
    app.add_typer(group, name=name, rich_help_panel=REMOTE_PANEL)
app.add_typer(accounts.looking)
app.add_typer(stats.looking)
app.add_typer(workers.looking)


def run() -> None:
    """The program."""
    app()


def _end(command: Run) -> None:
    raise typer.Exit(exit_code_of(command))
