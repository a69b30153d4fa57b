"""The commands and their options. Help texts come from the table of settings; heavy imports wait until needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from doorstep import __version__
from doorstep.config import Settings, setting_row, setting_rows
from doorstep.errors import ConfigError

app = typer.Typer(
    help="Doorstep delivers events to webhooks and handlers, retries with sense, and loses nothing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _option(flag: str, name: str) -> Any:
    row = setting_row(name)
    default = f" [default: {row.default}]" if row.default else ""
    return typer.Option(flag, envvar=None, help=f"{row.about} ({row.variable}){default}", show_default=False)


Host = Annotated[str | None, _option("--host", "host")]
Port = Annotated[int | None, _option("--port", "port")]
Database = Annotated[str | None, _option("--database", "database_url")]
Workers = Annotated[int | None, _option("--workers", "workers")]
App = Annotated[
    str | None,
    typer.Option("--app", help="Your own Doorstep with its handlers, as module:name, looked for from this folder."),
]
EndWithParent = Annotated[bool, typer.Option("--end-with-parent", hidden=True)]


@app.command()
def serve(host: Host = None, port: Port = None, database: Database = None, workers: Workers = None) -> None:
    """Run everything in one process: the HTTP API and the delivering, plus more worker processes if asked."""
    from doorstep.cli import serving

    _run(lambda: serving.serve(_settings(host=host, port=port, database_url=database, workers=workers)))


@app.command()
def worker(database: Database = None, app: App = None, end_with_parent: EndWithParent = False) -> None:
    """Run a worker alone: it delivers what others accept. Any number of them share one database."""
    from doorstep.cli import working

    _run(lambda: working.work(_settings(database_url=database), app, end_with_parent=end_with_parent))


@app.command()
def migrate(database: Database = None) -> None:
    """Bring the database's tables to this version; harmless when they are."""
    from doorstep.cli import migrating

    _run(lambda: migrating.migrate(_settings(database_url=database)))


@app.command()
def settings() -> None:
    """List every setting: its variable, its rule and its default."""
    for row in setting_rows():
        default = f", by default {row.default}" if row.default else ""
        typer.echo(f"{row.variable}\n    {row.about}\n    Must be {row.rule}{default}.\n")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"doorstep {__version__}")


def run() -> None:
    """The program."""
    app()


def _settings(**arguments: object) -> Settings:
    return Settings(**{name: value for name, value in arguments.items() if value is not None})


def _run(command: Callable[[], int]) -> None:
    """Exit with the command's code; a bad setting is one sentence and code 2, like a bad option."""
    try:
        code = command()
    except ConfigError as error:
        typer.echo(f"doorstep: {error}", err=True)
        code = 2
    raise typer.Exit(code)
