"""Options that several commands share, and the parsers of their values.

A command may take a set of options as one parameter: a NamedTuple whose fields are the options.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
import typer

from doorstep.cli.output import say
from doorstep.clock import AnchoredClock, Instant, seconds, to_datetime
from doorstep.config import Settings, setting_row
from doorstep.errors import ConfigError, DoorstepError

T = TypeVar("T")


# -- sets of options ---------------------------------------------------------------------------------------


def expand(parameters: Iterable[Parameter]) -> Iterator[Parameter]:
    """The parameters, with each set of options replaced by its fields."""
    for parameter in parameters:
        kind = parameter.annotation
        if not is_set(kind):
            yield parameter.replace(kind=Parameter.KEYWORD_ONLY)
            continue
        for name, annotation in get_type_hints(kind, include_extras=True).items():
            default = kind._field_defaults.get(name, Parameter.empty)
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def collect(parameters: Iterable[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the original parameters, with the sets of options rebuilt from their fields."""
    return {parameter.name: _value(parameter, given) for parameter in parameters}


def is_set(annotation: object) -> bool:
    """Whether a parameter with this annotation is a set of options: a NamedTuple."""
    return hasattr(annotation, "_field_defaults")


def _value(parameter: Parameter, given: Mapping[str, Any]) -> Any:
    kind = parameter.annotation
    return kind(**{name: given[name] for name in kind._fields}) if is_set(kind) else given[parameter.name]


# -- parsers -----------------------------------------------------------------------------------------------

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)?")


def duration_seconds(text: str) -> float:
    """Parse a duration such as `5`, `5s`, `500ms`, `2m`, `1h` or `7d` into seconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"a duration is a number with a unit (ms, s, m, h, d), such as 5s, got {text!r}")
    return float(found[1]) * _UNITS[found[2] or "s"]


def share(text: str) -> float:
    """Parse a share such as `30%` or `0.3` into a number from 0 to 1."""
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise ValueError(f"a share is from 0% to 100%, such as 30%, got {text!r}")
    return value


def past(text: str, now: Instant) -> datetime:
    """Parse a time: ISO 8601 (UTC if there is no time zone), or a duration before now (`2h`, `2h ago`)."""
    return _time(text, text.strip().removesuffix("ago"), "before now", lambda span: now - span)


def future(text: str, now: Instant) -> datetime:
    """Parse a time: ISO 8601 (UTC if there is no time zone), or a duration from now (`2h`, `in 2h`)."""
    return _time(text, text.strip().removeprefix("in "), "from now", lambda span: now + span)


def _time(text: str, span: str, direction: str, moved: Callable[[int], Instant]) -> datetime:
    found = _DURATION.fullmatch(span.strip().lower())
    if found is not None and found[2]:  # a number without a unit is rejected: its unit would be a guess
        return to_datetime(moved(seconds(duration_seconds(span))))
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        form = f"ISO 8601 such as 2026-11-15T12:00:00Z, or a duration {direction} such as 2h"
        raise ValueError(f"a time is {form}, got {text.strip()!r}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def policy_or_delays(text: str) -> str | list[float]:
    """Parse the name of a retry policy, or delays such as `5s,1m`, which become a list of seconds."""
    from doorstep.policy.retry import BUILT_IN

    if text in BUILT_IN:
        return text
    try:
        return [duration_seconds(delay) for delay in text.split(",")]
    except ValueError as error:
        known = ", ".join(BUILT_IN)
        raise ValueError(
            f"a policy is one of {known}, or a list of delays such as 5s,5m,2h, got {text!r} ({error})"
        ) from None


def field_value(text: str) -> str:
    """Check a field and its value, such as `order.id=42`."""
    path, equals, value = text.partition("=")
    if not (path and equals and value):
        raise ValueError(f"a field and its value are such as order.id=42, got {text!r}")
    return text


def fields_from(texts: Iterable[str] | None) -> dict[str, str] | None:
    """Values by field, from texts that `field_value` has checked."""
    return {path: value for path, _, value in (text.partition("=") for text in texts)} if texts else None


def option_parser(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Turn a ValueError of the parser into a usage error with the same message."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


Past = option_parser(lambda text: past(text, AnchoredClock().now()))
Future = option_parser(lambda text: future(text, AnchoredClock().now()))
DurationSeconds = option_parser(duration_seconds)
Share = option_parser(share)
FieldValue = option_parser(field_value)


def read_payload(what: str, text: str) -> bytes:
    """The payload: JSON from the command line, from `@file`, or from standard input (`-`).

    If it is not valid JSON, the usual cause is a shell that removed the quotes.
    """
    content = _read(what, text).strip()
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{what} must be JSON: {error}; put it in single quotes, or use @file") from None
    return content


def read_text(what: str, text: str) -> str:
    """A text from the command line, from `@file`, or from standard input (`-`)."""
    return _read(what, text).decode("utf-8", "replace").strip()


def _read(what: str, text: str) -> bytes:
    if text == "-":
        if sys.stdin.isatty():
            say(f"Type {what}, then Ctrl-D:")
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode("utf-8", "surrogateescape")
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise ConfigError(f"{what}: cannot read the file {text[1:]}: {error.strerror}; check its name") from None


_COMPLETION_SECONDS = 1.0


def complete_endpoint(incomplete: str) -> list[str]:
    """Endpoint names for shell completion. Empty if no server responds quickly, because completion must never fail."""
    from doorstep.cli.commands import PAGE_MAX, connect

    try:
        with connect(Settings(), tries=1, timeout_seconds=_COMPLETION_SECONDS) as client:
            return [one.name for one in client.endpoints.page(limit=PAGE_MAX) if one.name.startswith(incomplete)]
    except DoorstepError:
        return []


# -- options -----------------------------------------------------------------------------------------------


def option(flag: str, metavar: str | None, help: str, parser: Callable[[str], Any] | None = None, **more: Any) -> Any:
    """An option with a value. The help shows `metavar` as the name of the value."""
    return typer.Option(flag, metavar=metavar, help=help, parser=parser, **more)


def flag(name: str, help: str, *short: str, **more: Any) -> Any:
    """A switch, or an option whose help lists its few values."""
    return typer.Option(name, *short, help=help, **more)


def _setting(flag: str, name: str, metavar: str | None = None) -> Any:
    row = setting_row(name)
    default = f" [default: {row.default}]" if row.default else ""
    return option(flag, metavar, f"{row.about} ({row.variable}){default}", show_default=False)


Host = Annotated[str | None, _setting("--host", "host", "HOST")]
Port = Annotated[int | None, _setting("--port", "port", "PORT")]
Database = Annotated[str | None, _setting("--database", "database_url", "URL")]
Workers = Annotated[int | None, _setting("--workers", "workers", "N")]
Url = Annotated[str | None, _setting("--url", "url", "URL")]
Key = Annotated[str | None, _setting("--key", "api_key", "KEY")]
Json = Annotated[bool, flag("--json", "Write only JSON to standard output.")]

Limit = Annotated[
    int,
    typer.Option(
        "--limit", "-n", metavar="N", min=1, max=100_000, help="Show at most N rows, from as many pages as needed."
    ),
]
Cursor = Annotated[str | None, option("--cursor", "CURSOR", "Continue where an earlier list stopped.")]
Reason = Annotated[str | None, option("--reason", "TEXT", "The reason, for the audit log.")]
Yes = Annotated[bool, flag("--yes", "Do not ask for confirmation.", "-y")]
EventId = Annotated[str, typer.Argument(help="The event's id, or its last eight digits.")]
EventType = Annotated[
    str | None, option("--type", "TYPE", "Only this event type; a * at the end matches any suffix: order.*")
]
EndpointArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENDPOINT",
        autocompletion=complete_endpoint,
        help="The endpoint's id, its last eight digits, or its name.",
    ),
]
OfEndpoint = Annotated[
    str | None, option("--endpoint", "ENDPOINT", "Only this endpoint, by id or name.", autocompletion=complete_endpoint)
]
Since = Annotated[
    datetime | None, option("--since", "TIME", "From this time on: 2026-11-15T12:00:00Z, or how long ago: 2h", Past)
]
Until = Annotated[datetime | None, option("--until", "TIME", "Before this time.", Past)]


def without_none(values: Mapping[str, T | None]) -> dict[str, T]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def settings_from(**arguments: object) -> Settings:
    """Read the settings. Command-line arguments that are not None override them."""
    return Settings(**without_none(arguments))
