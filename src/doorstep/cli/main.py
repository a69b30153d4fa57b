"""The entry point: a table of all commands, each with the module that implements it.

A command's module is imported when the command runs, so that `--help` and shell completion load almost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from doorstep import __version__

_LOCAL, _TRY, _REMOTE = "On this machine", "To try it out", "On a server"
_MARKUP: Any = "markdown"


class Entry(NamedTuple):
    """The module that implements a command, and the command's line in the help."""

    module: str
    panel: str
    summary: str
    """For a group, its help. For a single command, the first paragraph of its docstring; a test checks that they are
    equal."""
    group: str | None = None
    """The name of a group's `typer.Typer`. None for a single command, which is in the module's `commands`."""


# fmt: off
COMMANDS = {
    "serve": Entry("local", _LOCAL, "Run the HTTP API and a worker in one process, and more worker processes if configured."),
    "worker": Entry("local", _LOCAL, "Run a worker, which delivers events. Any number of workers can share one database."),
    "migrate": Entry("local", _LOCAL, "Update the database tables to this version. Does nothing if they are up to date."),
    "adopt-key": Entry("local", _LOCAL, "Make DOORSTEP_SECRET_KEY the key of the database, if the old key is lost. Stop all processes first."),
    "doctor": Entry("local", _LOCAL, "Check settings, port, disk, database, secret key, clock and the connection to every endpoint."),
    "settings": Entry("local", _LOCAL, "List every setting with its variable, its allowed values and its default."),
    "version": Entry("local", _LOCAL, "Print the version."),
    "outbox": Entry("local", _LOCAL, "List, retry or discard rejected outbox messages.", "outbox"),
    "demo": Entry("local", _TRY, "Start a demo: a small shop with healthy, flaky, slow and broken receivers, and steady traffic."),
    "new": Entry("local", _TRY, "Write the program of a profile into a new folder, as the start of a service of your own."),
    "listen": Entry("local", _TRY, "Receive webhooks on this machine: print requests, check signatures, simulate failures and delays."),
    "policy": Entry("policies", _TRY, "Explain retry policies.", "policy"),
    "send": Entry("events", _REMOTE, "Send an event. When the command returns, the event is on stable storage."),
    "status": Entry("events", _REMOTE, "Show the status of an event, without its payload."),
    "find": Entry("events", _REMOTE, "Show what an id belongs to: an event, a delivery, an endpoint, an alert or a bulk operation."),
    "tail": Entry("monitoring", _REMOTE, "Follow events and deliveries as they change. Ctrl-C stops it."),
    "console": Entry("administration", _REMOTE, "Print a link that signs you in to the console with your key; it works once, within 30 minutes."),
    "events": Entry("events", _REMOTE, "List events, and inspect, retry, cancel, replay or delete one.", "events"),
    "inbox": Entry("events", _REMOTE, "Fetch and acknowledge events that no endpoint subscribes to.", "inbox"),
    "deliveries": Entry("events", _REMOTE, "List deliveries in any state, and show one with its attempt log and history.", "deliveries"),
    "attempts": Entry("events", _REMOTE, "List the attempts of all deliveries.", "attempts"),
    "endpoints": Entry("endpoints", _REMOTE, "Create, inspect, update, pause and test endpoints.", "endpoints"),
    "retry-queue": Entry("queues", _REMOTE, "Work on deliveries that failed and will be retried.", "retry_queue"),
    "dead-letters": Entry("queues", _REMOTE, "Work on deliveries that failed permanently.", "dead_letters"),
    "bulk": Entry("queues", _REMOTE, "List, watch, pause, resume and cancel bulk operations.", "bulk"),
    "pipelines": Entry("events", _REMOTE, "List, retry, approve, reject and delete pipeline entities.", "pipelines"),
    "batches": Entry("events", _REMOTE, "Find batches by status, read their carrier log, resubmit them.", "batches"),
    "search-fields": Entry("events", _REMOTE, "Show or declare the fields by which events are found at once (declaring needs the role `admin`)."),
    "slo": Entry("monitoring", _REMOTE, "Service-level targets of endpoints, their error budgets and burn rates.", "slo"),
    "alerts": Entry("administration", _REMOTE, "List and acknowledge alerts.", "alerts"),
    "alert-rules": Entry("administration", _REMOTE, "List and change the rules that raise alerts.", "rules"),
    "silences": Entry("administration", _REMOTE, "Suppress alert notifications for a while.", "silences"),
    "channels": Entry("administration", _REMOTE, "Create, test, resume and delete the channels that alerts are sent to.", "channels"),
    "keys": Entry("administration", _REMOTE, "Create, list and revoke API keys.", "keys"),
    "orgs": Entry("administration", _REMOTE, "Create, rename, delete and list organizations (for admins of the default organization).", "orgs"),
    "audit": Entry("administration", _REMOTE, "Show the audit log: who did what, when, to which objects, with what result; newest first."),
    "stats": Entry("monitoring", _REMOTE, "Show queue depth, dead letters and inbox size; with --range, also small charts of the past."),
    "workers": Entry("monitoring", _REMOTE, "Show workers and their load, including workers lost within the last day (default organization only)."),
}
# fmt: on

EXIT_CODES_HELP = (
    "Exit codes: 0 success, 1 failure, 2 invalid usage or input, 3 not found, 4 refused (key, role or state), "
    "5 server unreachable."
)


class LazyGroup(TyperGroup):
    """Imports only the command that runs. Help and completion use the names and summaries in the table."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=entry.summary, rich_help_panel=entry.panel)
            for name, entry in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(str(name)), rest


app = typer.Typer(
    cls=LazyGroup,
    help="Doorstep delivers events to webhooks and Python handlers, retries with backoff, and loses nothing.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(given: bool) -> None:
    if given:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def load(name: str) -> Any:
    """Import a command, or a group with its commands."""
    entry = COMMANDS[name]
    module = import_module(f"doorstep.cli.{entry.module}")
    root = typer.Typer(rich_markup_mode=_MARKUP)
    if entry.group is None:
        root.add_typer(module.commands)
    else:
        root.add_typer(getattr(module, entry.group), name=name, help=entry.summary, no_args_is_help=True)
    return typer.main.get_group(root).commands[name]


def command_tree() -> Any:
    """The root command with every command loaded, for documentation and tests."""
    root: Any = typer.main.get_group(app)
    root.commands = {name: load(name) for name in COMMANDS}
    return root


def run() -> None:
    """Run the program."""
    app()
