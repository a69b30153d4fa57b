"""What can be set of an endpoint, as options; `create` and `update` share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer

from doorstep.cli.naming import complete_endpoint
from doorstep.cli.spans import parsed_by, share, span_seconds
from doorstep.errors import ConfigError
from doorstep.policy.retry import BUILT_IN


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


class Resettable(StrEnum):
    """Fields that can be put back to their defaults."""

    EVENT_TYPES = "event_types"
    POLICY = "policy"
    POLICY_BY_EVENT_TYPE = "policy_by_event_type"
    TIMEOUT_SECONDS = "timeout_seconds"
    CONCURRENCY_MAX = "concurrency_max"
    RATE_PER_SECOND = "rate_per_second"
    HEADERS = "headers"
    RETRY_ON = "retry_on"
    GIVE_UP_ON = "give_up_on"
    CODE_MAP = "code_map"
    CIRCUIT = "circuit"
    SLO = "slo"
    ENVELOPE = "envelope"
    BATCH = "batch"


_Span = parsed_by(span_seconds)

EndpointArgument = Annotated[
    str, typer.Argument(metavar="ENDPOINT", autocompletion=complete_endpoint, help="Its id or its name.")
]
EventTypes = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="An event type it takes, such as order.*; repeatable. [default: *]"),
]
Policy = Annotated[
    Any,
    typer.Option(
        "--policy",
        metavar="POLICY",
        parser=parsed_by(policy_form),
        autocompletion=lambda incomplete: [name for name in BUILT_IN if name.startswith(incomplete)],
        help=f"When to retry: {', '.join(BUILT_IN)}, or pauses such as 5s,5m,2h.",
    ),
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SPAN", parser=_Span, help="How long one attempt may take: 10s")
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", metavar="N", min=1, help="At most so many attempts at once.")
]
RatePerSecond = Annotated[float | None, typer.Option("--rate", metavar="N", help="At most so many attempts a second.")]
Headers = Annotated[
    list[Any] | None,
    typer.Option(
        "--header", metavar="'NAME: VALUE'", parser=parsed_by(header), help="Sent with every request; repeatable."
    ),
]
RetryOn = Annotated[
    list[str] | None,
    typer.Option("--retry-on", metavar="CODE", help="Retry this code or status although it is permanent; * is all."),
]
GiveUpOn = Annotated[
    list[str] | None,
    typer.Option("--give-up-on", metavar="CODE", help="Do not retry this code or status although it is transient."),
]
CodeMap = Annotated[
    list[Any] | None,
    typer.Option(
        "--code",
        metavar="THEIRS=OURS",
        parser=parsed_by(translation),
        help="What a code of the receiver's own stands for; repeatable.",
    ),
]
Failures = Annotated[
    int | None,
    typer.Option("--circuit-failures", metavar="N", min=1, help="Open its circuit after so many failures in a row."),
]
OpenFor = Annotated[
    float | None, typer.Option("--circuit-open", metavar="SPAN", parser=_Span, help="Keep it open so long: 5m")
]
Slo = Annotated[
    Any,
    typer.Option(
        "--slo",
        metavar="SHARE,SPAN[,SPAN]",
        parser=parsed_by(target),
        help="Its target: what is to arrive, how soon 95 % of it, how old what waits may be: 99.9%,30s,1h",
    ),
]
Envelope = Annotated[
    bool | None, typer.Option("--envelope/--no-envelope", help="Wrap payloads as {type, timestamp, data}.")
]
Batch = Annotated[
    bool | None, typer.Option("--batch/--no-batch", help="What it takes are batches; its types are named in full.")
]


class Form(NamedTuple):
    """What a new endpoint may be given, and an old one may be changed in."""

    event_types: EventTypes = None
    policy: Policy = None
    timeout_seconds: Timeout = None
    concurrency_max: Concurrency = None
    rate_per_second: RatePerSecond = None
    headers: Headers = None
    retry_on: RetryOn = None
    give_up_on: GiveUpOn = None
    code_map: CodeMap = None
    circuit_failures: Failures = None
    circuit_open: OpenFor = None
    slo: Slo = None
    envelope: Envelope = None
    batch: Batch = None

    def fields(self, circuit_now: Mapping[str, Any] = MappingProxyType({}), **more: object) -> dict[str, Any]:
        """What was given, by the names of the API. A circuit is set as a whole: `circuit_now` fills in the rest."""
        rules = _given({"failures_max": self.circuit_failures, "open_seconds": self.circuit_open})
        plain = {name: value for name, value in self._asdict().items() if not name.startswith("circuit_")}
        plain["headers"] = dict(self.headers) if self.headers else None
        plain["code_map"] = dict(self.code_map) if self.code_map else None
        plain["circuit"] = {**circuit_now, **rules} if rules else None
        return _given(plain | more)


def _given(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def with_resets(fields: dict[str, Any], names: Sequence[Resettable]) -> dict[str, Any]:
    """The same, with these fields put back to their defaults."""
    twice = [name for name in names if name in fields]
    if twice:
        raise ConfigError(f"{twice[0]} is both given and reset; do one of the two")
    changed = fields | dict.fromkeys(map(str, names))
    if not changed:
        raise ConfigError("nothing to change was given; see doorstep endpoints update --help")
    return changed
