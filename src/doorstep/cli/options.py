"""Options that several commands share, so that they are called and explained the same everywhere."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from inspect import Parameter
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from doorstep.cli.endpoint_names import complete_endpoint
from doorstep.cli.output import Output
from doorstep.clock import AnchoredClock, Instant, seconds, to_datetime
from doorstep.config import Settings, setting_row


def spread(parameters: Iterable[Parameter]) -> Iterator[Parameter]:
    """The parameters with each set replaced by those of its fields."""
    for parameter in parameters:
        if is_set(parameter.annotation):
            yield from _fields(parameter.annotation)
        else:
            yield parameter.replace(kind=Parameter.KEYWORD_ONLY)


def gathered(parameters: Iterable[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for the spread parameters, with the sets put together again."""
    return {parameter.name: _value(parameter, given) for parameter in parameters}


def is_set(annotation: object) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, tuple) and hasattr(annotation, "_field_defaults")


def _value(parameter: Parameter, given: Mapping[str, Any]) -> Any:
    kind = parameter.annotation
    return kind(**{name: given[name] for name in kind._fields}) if is_set(kind) else given[parameter.name]


def _fields(kind: Any) -> Iterator[Parameter]:
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        default = kind._field_defaults.get(name, Parameter.empty)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


T = TypeVar("T")

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)?")


def span_seconds(text: str) -> float:
    """Seconds: `5`, `5s`, `500ms`, `2m`, `1h`, `7d`."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"a span is a number with a unit (ms, s, m, h, d), such as 5s, got {text!r}")
    return float(found[1]) * _UNITS[found[2] or "s"]


def share(text: str) -> float:
    """From 0 to 1: `30%` or `0.3`."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise ValueError(f"a share is from 0% to 100%, such as 30%, got {text!r}")
    return value


def past(text: str, now: Instant) -> datetime:
    """A time: ISO 8601 (UTC, if it names no zone), or a span before now (`2h`, `2h ago`)."""
    words = text.strip()
    span = words.removesuffix("ago").strip().lower()
    return to_datetime(now - seconds(span_seconds(span))) if _has_unit(span) else _iso(words, "before now such as 2h")


def future(text: str, now: Instant) -> datetime:
    """A time: ISO 8601 (UTC, if it names no zone), or a span from now (`2h`, `in 2h`)."""
    words = text.strip()
    span = words.removeprefix("in ").strip().lower()
    return to_datetime(now + seconds(span_seconds(span))) if _has_unit(span) else _iso(words, "from now such as 2h")


def _has_unit(span: str) -> bool:
    """A bare number is no time: nobody can say of what."""
    return _SPAN.fullmatch(span) is not None and not span.replace(".", "").isdigit()


def _iso(words: str, or_else: str) -> datetime:
    try:
        found = datetime.fromisoformat(words)
    except ValueError:
        raise ValueError(
            f"a time is ISO 8601 such as 2026-11-15T12:00:00Z, or a span {or_else}, got {words!r}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def shown_span(value: float) -> str:
    """Seconds as people say them: `45 s`, `5 min`, `1 h 30 min`, `2 d 4 h`: two units at most."""
    if value < 60:
        return f"{value:.3g} s"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        whole, value = divmod(round(value), size)
        if whole:
            parts.append(f"{whole:.0f} {unit}")
    return " ".join(parts[:2])


def parsed_by(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The same as an option's parser: what cannot be read is wrong usage, said in the parser's own words."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


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
