"""What can be set of an endpoint, as options; `create` and `update` share them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import typer

from doorstep.cli.endpoint_names import complete_endpoint
from doorstep.cli.options import parsed_by, share, span_seconds
from doorstep.errors import ConfigError
from doorstep.policy.retry import BUILT_IN
from doorstep.schemas.endpoints import INPUTS, RESETTABLE, Input


def policy_form(text: str) -> str | list[float]:
    """A policy's name, or its pauses in seconds."""
    return text if text in BUILT_IN else [span_seconds(part) for part in text.split(",")]


def header(text: str) -> tuple[str, str]:
    """`Name: value`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ValueError(f"a header is 'Name: value', got {text!r}")
    return name.strip(), value.strip()


def translation(text: str) -> tuple[str, str]:
    """`THEIRS=OURS`."""
    theirs, equals, ours = text.partition("=")
    if not equals or not theirs.strip() or not ours.strip():
        raise ValueError(f"a code is translated as 'THEIRS=OURS', got {text!r}")
    return theirs.strip(), ours.strip()


def target(text: str) -> dict[str, float]:
    """`99.9%,30s,1h`: what is to arrive, how soon 95 % of it, and how old what waits may be at most."""
    success, *spans = text.split(",")
    if len(spans) not in (1, 2):
        raise ValueError(f"a target is a share and one or two spans, such as 99.9%,30s,1h, got {text!r}")
    return {"success": share(success), **dict(zip(("p95_seconds", "oldest_seconds"), map(span_seconds, spans)))}


def resettable(text: str) -> str:
    if text not in RESETTABLE:
        raise ValueError(f"{text!r} is not one of {', '.join(RESETTABLE)}")
    return text


EndpointArgument = Annotated[
    str, typer.Argument(metavar="ENDPOINT", autocompletion=complete_endpoint, help="Its id or its name.")
]
Reset = Annotated[
    list[Any] | None,
    typer.Option(
        "--reset",
        metavar="FIELD",
        parser=parsed_by(resettable),
        help=f"Put a field back to its default; repeatable: {', '.join(RESETTABLE)}.",
    ),
]

_POLICY = {
    "parser": parsed_by(policy_form),
    "autocompletion": lambda incomplete: [name for name in BUILT_IN if name.startswith(incomplete)],
}
_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "line": (str | None, {}),
    "text": (str | None, {}),
    "lines": (list[str] | None, {}),
    "number": (float | None, {}),
    "whole": (int | None, {"min": 1}),
    "span": (float | None, {"parser": parsed_by(span_seconds)}),
    "tick": (bool | None, {}),
    "headers": (list[Any] | None, {"parser": parsed_by(header)}),
    "pairs": (list[Any] | None, {"parser": parsed_by(translation)}),
    "policy": (Any, _POLICY),
    "percent": (Any, {"parser": parsed_by(target)}),
}
"""The type of an option, and how its text is read. A target is given as a whole."""


def _options() -> Any:
    given = [one for one in INPUTS if one.option]
    form: Any = namedtuple("Form", [_parameter(one) for one in given], defaults=[None] * len(given))  # type: ignore[misc]
    form.__annotations__ = {_parameter(one): _option(one) for one in given}
    return form


def _option(one: Input) -> Any:
    kind, reading = _KINDS[one.kind]
    words = one.help.replace("{policies}", ", ".join(BUILT_IN))
    return Annotated[kind, typer.Option(one.option, metavar=one.metavar or None, help=words, **reading)]


def _parameter(one: Input) -> str:
    return "slo" if one.field == "slo" else one.name.replace(".", "_")


class Form(_options()):  # type: ignore[misc]
    """What a new endpoint may be given, and an old one may be changed in: the table of inputs as options."""

    def fields(self, circuit_now: Mapping[str, Any] = MappingProxyType({}), **more: object) -> dict[str, Any]:
        """What was given, by the names of the API. A circuit is set as a whole: `circuit_now` fills in the rest."""
        plain = {name: value for name, value in self._asdict().items() if not name.startswith("circuit_")}
        rules = _given({"failures_max": self.circuit_failures_max, "open_seconds": self.circuit_open_seconds})
        plain["headers"] = dict(self.headers) if self.headers else None
        plain["code_map"] = dict(self.code_map) if self.code_map else None
        plain["circuit"] = {**circuit_now, **rules} if rules else None
        return _given(plain | more)


def _given(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def with_resets(fields: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The same, with these fields put back to their defaults."""
    twice = [name for name in names if name in fields]
    if twice:
        raise ConfigError(f"{twice[0]} is both given and reset; do one of the two")
    changed = fields | dict.fromkeys(names)
    if not changed:
        raise ConfigError("nothing to change was given; see doorstep endpoints update --help")
    return changed
