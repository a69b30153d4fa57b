"""Options that several commands share, so that they are called and explained the same everywhere."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from doorstep.cli.naming import complete_endpoint
from doorstep.cli.output import Output
from doorstep.cli.spans import future, parsed_by, past
from doorstep.clock import AnchoredClock
from doorstep.config import Settings, setting_row


def _setting(flag: str, name: str, metavar: str | None = None) -> Any:
    row = setting_row(name)
    default = f" [default: {row.default}]" if row.default else ""
    return typer.Option(
        flag, envvar=None, help=f"{row.about} ({row.variable}){default}", show_default=False, metavar=metavar
    )


Past = parsed_by(lambda text: past(text, AnchoredClock().now()))
Future = parsed_by(lambda text: future(text, AnchoredClock().now()))
"""The parsers of options that are times: a span such as `2h` counts back from now, or on from now."""
_HOW_TO_WRITE_TIMES = "2026-11-15T12:00:00Z, or how long ago: 2h"


Host = Annotated[str | None, _setting("--host", "host", "HOST")]
Port = Annotated[int | None, _setting("--port", "port", "PORT")]
Database = Annotated[str | None, _setting("--database", "database_url", "URL")]
Workers = Annotated[int | None, _setting("--workers", "workers", "N")]
Url = Annotated[str | None, _setting("--url", "url", "URL")]
Key = Annotated[str | None, _setting("--key", "api_key", "KEY")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output, and nothing else.")]

Limit = Annotated[
    int,
    typer.Option(
        "--limit", "-n", metavar="N", min=1, max=100_000, help="At most so many; pages are followed as needed."
    ),
]
Cursor = Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where an earlier list ended.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.001, metavar="N", help="At most so many a second.")]
EventType = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Only this event type; a final * stands for any rest: order.*"),
]
OfEndpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="ENDPOINT",
        autocompletion=complete_endpoint,
        help="Only this endpoint: its id or its name.",
    ),
]
Since = Annotated[
    datetime | None,
    typer.Option("--since", metavar="TIME", parser=Past, help=f"Not before this: {_HOW_TO_WRITE_TIMES}"),
]
Until = Annotated[datetime | None, typer.Option("--until", metavar="TIME", parser=Past, help="Before this.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="These deliveries.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All of them.")]
PreviewOnly = Annotated[
    bool, typer.Option("--preview", help="Only show how many it would be, and for which endpoints.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Begin it, and do not watch it to its end.")]


def settings_from(**arguments: object) -> Settings:
    """The settings with what the command line said on top."""
    return Settings(**{name: value for name, value in arguments.items() if value is not None})


def output_for(as_json: bool) -> Output:
    return Output(as_json=as_json)
