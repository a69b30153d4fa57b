"""`doorstep endpoints`: create, inspect, update and operate endpoints."""

from __future__ import annotations

import time
from collections import namedtuple
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
import typer

from doorstep.cli.commands import ExitCode, Paging, Session, none_of, remote
from doorstep.cli.options import (
    DurationSeconds,
    EndpointArgument,
    EventType,
    Past,
    Reason,
    Yes,
    duration_seconds,
    flag,
    option,
    option_parser,
    policy_or_delays,
    read_payload,
    read_text,
    share,
    without_none,
)
from doorstep.cli.output import columns, duration, percent
from doorstep.cli.queues import BulkOptions, start
from doorstep.errors import ConfigError
from doorstep.policy.retry import BUILT_IN
from doorstep.schemas.endpoints import DESTINATIONS, INPUTS, RESETTABLE, Input, ListedState, Signing
from doorstep.schemas.events import Status
from doorstep.schemas.stats import HealthSort, Range, SortOrder

if TYPE_CHECKING:
    from doorstep.client import Client
    from doorstep.schemas.deliveries import Attempt

endpoints = typer.Typer()


# -- fields as options -------------------------------------------------------------------------------------


def _header(text: str) -> tuple[str, str]:
    """Parse `Name: value`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ValueError(f"a header is 'Name: value', got {text!r}")
    return name.strip(), value.strip()


def _code_mapping(text: str) -> tuple[str, str]:
    """Parse `THEIRS=OURS`: one of the receiver's own error codes, and the Doorstep code that it means."""
    theirs, equals, ours = text.partition("=")
    if not equals or not theirs.strip() or not ours.strip():
        raise ValueError(f"a code mapping is 'THEIRS=OURS', got {text!r}")
    return theirs.strip(), ours.strip()


def _target(text: str) -> dict[str, float]:
    """Parse `99.9%,30s,1h`: the success rate, the 95th percentile of the time to delivery, and the maximum wait."""
    success, *durations = text.split(",")
    if len(durations) not in (1, 2):
        raise ValueError(f"a target is a share and one or two durations, such as 99.9%,30s,1h, got {text!r}")
    return {"success": share(success), **dict(zip(("p95_seconds", "oldest_seconds"), map(duration_seconds, durations)))}


def destination(text: str) -> dict[str, Any]:
    """Parse a kind, such as `handler`, or a JSON object with the kind and its fields."""
    if not text.startswith("{"):
        if text not in DESTINATIONS:
            raise ValueError(f"a destination is one of {', '.join(DESTINATIONS)}, or a JSON object, got {text!r}")
        return {"kind": text}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"a destination must be a JSON object, got {text!r}: {error}") from None


def _resettable(text: str) -> str:
    if text not in RESETTABLE:
        raise ValueError(f"{text!r} is not one of {', '.join(RESETTABLE)}")
    return text


Reset = Annotated[
    list[Any] | None,
    option(
        "--reset",
        "FIELD",
        f"Reset a field to its default; repeatable: {', '.join(RESETTABLE)}.",
        option_parser(_resettable),
    ),
]

_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "line": (str | None, {}),
    "text": (str | None, {}),
    "lines": (list[str] | None, {}),
    "number": (float | None, {}),
    "whole": (int | None, {"min": 1}),
    "span": (float | None, {"parser": DurationSeconds}),
    "tick": (bool | None, {}),
    "headers": (list[Any] | None, {"parser": option_parser(_header)}),
    "pairs": (list[Any] | None, {"parser": option_parser(_code_mapping)}),
    "policy": (
        Any,
        {
            "parser": option_parser(policy_or_delays),
            "autocompletion": lambda incomplete: [name for name in BUILT_IN if name.startswith(incomplete)],
        },
    ),
    "percent": (Any, {"parser": option_parser(_target)}),
    "destination": (Any, {"parser": option_parser(destination)}),
}
"""For each kind of input, the type of its option and the parser for the option's text. A whole target is one option."""


def _options() -> Any:
    inputs = [one for one in INPUTS if one.option]
    fields: Any = namedtuple("Fields", [_parameter(one) for one in inputs], defaults=[None] * len(inputs))  # type: ignore[misc]
    fields.__annotations__ = {_parameter(one): _option(one) for one in inputs}
    return fields


def _option(one: Input) -> Any:
    kind, parsing = _KINDS[one.kind]
    help = one.help.replace("{policies}", ", ".join(BUILT_IN))
    return Annotated[kind, option(one.option, one.metavar or None, help, **parsing)]


def _parameter(one: Input) -> str:
    return "slo" if one.field == "slo" else one.name.replace(".", "_")


class Fields(_options()):  # type: ignore[misc]
    """The options that `create` and `update` share, generated from the table of an endpoint's inputs."""

    def given(self, current_circuit: Mapping[str, Any] = MappingProxyType({}), **more: object) -> dict[str, Any]:
        """The given fields, with their API names. The API replaces a circuit's settings as a whole, so those not given
        come from `current_circuit`."""
        plain = {name: value for name, value in self._asdict().items() if not name.startswith("circuit_")}
        named = {name.removeprefix("circuit_"): value for name, value in self._asdict().items() if name not in plain}
        rules = without_none(named)
        plain["headers"] = dict(self.headers) if self.headers else None
        plain["code_map"] = dict(self.code_map) if self.code_map else None
        plain["circuit"] = {**current_circuit, **rules} if rules else None
        return without_none(plain | more)


_NO_RECEIVER = (
    "an endpoint needs a receiver; give its URL after the name, or --handler, or --destination"
    " (--url is the address of the Doorstep server)"
)


def _with_resets(fields: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The fields, and None for each field to reset."""
    both = [name for name in names if name in fields]
    if both:
        raise ConfigError(f"{both[0]} is both set and reset; choose one")
    changed = fields | dict.fromkeys(names)
    if not changed:
        raise ConfigError("nothing to change; see doorstep endpoints update --help")
    return changed


SigningOption = Annotated[
    Signing | None, flag("--signing", "v1: shared secret [default for new endpoints]; v1a: Ed25519.")
]
OwnSecret = Annotated[
    str | None,
    option("--secret", "SECRET", "Your own secret, whsec_… or whsk_… (v1a): @file, or - for standard input."),
]


_WAIT: Any = "30s"
"""A string, because the option's parser is also applied to the default."""

# -- commands ----------------------------------------------------------------------------------------------


def _policy_text(policy: Any) -> str | None:
    if policy is None:
        return None
    return policy.name or ", ".join(f"{delay:g} s" for delay in policy.delays) or "never"


_COLUMNS = columns(
    "endpoint_id name state to",
    spare="event_types policy",
    to=lambda one: one.destination.target,
    policy=lambda one: _policy_text(one.policy),
)
_HEALTH = columns(
    "endpoint state circuit success delivered dead response delivery queue_depth dead_letters",
    spare="response_p50 response_p99 delivery_p50 waiting_since",
    endpoint="name",
    success=lambda one: percent(one.success_rate),
    response=lambda one: duration(one.response_time["p95"]),
    response_p50=lambda one: duration(one.response_time["p50"]),
    response_p99=lambda one: duration(one.response_time["p99"]),
    delivery=lambda one: duration(one.time_to_delivery["p95"]),
    delivery_p50=lambda one: duration(one.time_to_delivery["p50"]),
)
_CIRCUIT_HISTORY = columns("at old_state new_state reason")


@remote(endpoints, "list")
def list_endpoints(
    session: Session,
    paging: Paging,
    state: Annotated[ListedState | None, flag("--state", "Only endpoints in this state.")] = None,
) -> None:
    """List endpoints, oldest first."""
    none = "There are no endpoints; create one with `doorstep endpoints create`."
    page = paging.fetch(session.client.endpoints.page, state=state)
    session.show_page(page, "endpoints", _COLUMNS, none_of("endpoints", paging, none, state=state))


@remote(endpoints)
def health(
    session: Session,
    paging: Paging,
    range: Annotated[Range, flag("--range", "The period to report on.")] = "24h",
    sort: Annotated[HealthSort | None, flag("--sort", "Sort by this column; times by p95. [default: by age]")] = None,
    order: Annotated[SortOrder, flag("--order", "The order of --sort.")] = "desc",
) -> None:
    """Show the health of each endpoint: success rate, p95 of the response time and of the time to delivery, waiting
    deliveries and circuit.

    Example: `doorstep endpoints health --sort response_time`
    """
    page: Any = paging.fetch(session.client.endpoints.health, range=range, sort=sort, order=order)
    if not page.pagination.sort_complete:
        session.output.note("Only the 200 oldest endpoints are sorted; without --sort, all are listed.")
    session.show_page(page, "endpoints", _HEALTH, "There are no endpoints.")


@remote(endpoints)
def create(
    session: Session,
    fields: Fields,
    name: Annotated[str, typer.Argument(help="A name for people.")],
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The URL to deliver to.")] = None,
    handler: Annotated[
        str | None, option("--handler", "NAME", "Instead of a URL: a handler that workers have registered.")
    ] = None,
    signing: SigningOption = None,
    secret: OwnSecret = None,
) -> None:
    """Create an endpoint and print its signing secret, which is shown only once.

    Example: `doorstep endpoints create shop https://shop.example/hook --type 'order.*' --policy quick`
    """
    own = None if secret is None else read_text("--secret", secret)
    given = fields.given(name=name, url=url, handler=handler, signing=signing, secret=own)
    if not given.keys() & {"url", "handler", "destination"}:  # --url is easily mistaken for the receiver's URL
        raise ConfigError(_NO_RECEIVER)
    session.output.answer(session.client.endpoints.create(**given))
    if own is None:
        session.output.note("Keep the secret: it is shown only once, and the receiver needs it to verify signatures.")


@remote(endpoints)
def show(session: Session, endpoint: EndpointArgument) -> None:
    """Show an endpoint, but not its secret or the values of its headers."""
    session.output.answer(session.endpoint(endpoint))


@remote(endpoints)
def update(
    session: Session,
    endpoint: EndpointArgument,
    fields: Fields,
    name: Annotated[str | None, option("--name", "NAME", "A new name.")] = None,
    target: Annotated[str | None, option("--target", "URL", "The URL to deliver to.")] = None,
    reset: Reset = None,
) -> None:
    """Change the fields that are given as options. All other fields stay as they are.

    Example: `doorstep endpoints update shop --policy 5s,1m,10m --reset rate_per_second`
    """
    found = session.endpoint(endpoint)
    given = fields.given(msgspec.to_builtins(found.circuit), name=name, url=target)
    session.output.answer(session.client.endpoints.change(found.endpoint_id, **_with_resets(given, reset or ())))


@remote(endpoints)
def delete(session: Session, endpoint: EndpointArgument, yes: Yes = False) -> None:
    """Delete an endpoint. Its waiting deliveries become dead letters."""
    found = session.endpoint(endpoint)
    session.output.confirm(f"Delete endpoint {found.name}? Its waiting deliveries become dead letters.", yes)
    session.client.endpoints.delete(found.endpoint_id)
    session.output.line({"endpoint_id": found.endpoint_id, "deleted": True}, f"{found.endpoint_id}  deleted")


@remote(endpoints)
def pause(session: Session, endpoint: EndpointArgument, reason: Reason = None) -> None:
    """Pause an endpoint: hold its deliveries until it is resumed. None are lost."""
    done = session.client.endpoints.pause(session.endpoint(endpoint).endpoint_id, reason=reason)
    session.output.line(done, f"{done.name}  {done.state}")


@remote(endpoints)
def resume(
    session: Session,
    endpoint: EndpointArgument,
    drain: Annotated[float | None, option("--drain", "N", "Send at most N held deliveries per second.")] = None,
    skip_before: Annotated[
        datetime | None, option("--skip-before", "TIME", "Skip events accepted before this time.", Past)
    ] = None,
) -> None:
    """Resume an endpoint, and send its held deliveries; options limit the rate or skip old events.

    Example: `doorstep endpoints resume shop --drain 20 --skip-before 1d`
    """
    found = session.endpoint(endpoint)
    done = session.client.endpoints.resume(found.endpoint_id, drain_per_second=drain, skip_older_than=skip_before)
    session.output.line(done, f"{done.name}  {done.state}")


@remote(endpoints)
def test(
    session: Session,
    endpoint: EndpointArgument,
    event_type: Annotated[
        str | None, option("--type", "TYPE", "The type of the test event. [default: doorstep.test]")
    ] = None,
    payload: Annotated[str | None, option("--payload", "PAYLOAD", "JSON, @file, or - for standard input.")] = None,
    timeout: Annotated[float, option("--timeout", "SPAN", "How long to wait for the result.", DurationSeconds)] = _WAIT,
    no_wait: Annotated[bool, flag("--no-wait", "Only send the event.")] = False,
) -> int:
    """Send a test event to an endpoint, and show the result of the first attempt. It is delivered like any other event.

    The exit code is 1 if the attempt failed, or if there was none before the timeout.
    """
    found = session.endpoint(endpoint)
    content = None if payload is None else read_payload("--payload", payload)
    receipt = session.client.endpoints.test(found.endpoint_id, event_type=event_type, payload=content)
    if no_wait:
        text = f"{receipt.event_id}  {receipt.status}; see `doorstep status {receipt.event_id} --wait`"
        session.output.line(receipt, text)
        return ExitCode.OK
    attempt = _first_attempt(session.client, receipt.event_id, timeout)
    session.output.line({"event_id": receipt.event_id, "attempt": attempt}, f"{receipt.event_id}  {_result(attempt)}")
    if attempt is None:
        held = session.client.events.read(receipt.event_id).held
        why = "no worker has claimed it yet." if held is None else held.reason
        session.output.note(f"No attempt within {duration(timeout)}: {why} {_LATER}")
    return ExitCode.OK if attempt is not None and attempt.error_code is None else ExitCode.FAILED


_LATER = "The event is stored; see `doorstep events show` with its id."
_POLL_SECONDS = 0.1


def _first_attempt(client: Client, event_id: UUID, timeout_seconds: float) -> Attempt | None:
    """The first attempt of an event for one endpoint; None if there is none before the timeout."""
    give_up_at = time.monotonic() + timeout_seconds
    while True:
        for delivery in client.events.read(event_id).deliveries:
            if attempts := client.deliveries.attempts(delivery.delivery_id).items:
                return attempts[0]
        if time.monotonic() >= give_up_at:
            return None
        time.sleep(_POLL_SECONDS)


def _result(attempt: Attempt | None) -> str:
    """For example `delivered: 200 in 12 ms`, or `failed: 503 in 8 ms: UNAVAILABLE, The receiver is unavailable.`"""
    if attempt is None:
        return "waiting"
    answer = "no response" if attempt.response_code is None else str(attempt.response_code)
    took = f"{answer} in {attempt.duration_ms:.0f} ms"
    if attempt.error_code is None:
        return f"delivered: {took}"
    return f"failed: {took}: {attempt.error_code}, {attempt.error_reason}"


@remote(endpoints, "rotate-secret")
def rotate_secret(
    session: Session,
    endpoint: EndpointArgument,
    overlap: Annotated[
        float | None,
        option("--overlap", "SPAN", "How long requests are signed with both secrets. [default: 1d]", DurationSeconds),
    ] = None,
    signing: SigningOption = None,
    secret: OwnSecret = None,
    yes: Yes = False,
) -> None:
    """Create a new signing secret, shown only once. For a while, requests are signed with the old secret too."""
    found = session.endpoint(endpoint)
    session.output.confirm(f"Rotate the secret of {found.name}?", yes)
    own = None if secret is None else read_text("--secret", secret)
    rotated = session.client.endpoints.rotate_secret(
        found.endpoint_id, overlap_seconds=overlap, signing=signing, secret=own
    )
    session.output.answer(rotated)


@remote(endpoints)
def circuit(session: Session, endpoint: EndpointArgument) -> None:
    """Show the state of an endpoint's circuit (closed, open or half-open), and its recent changes."""
    found = session.client.endpoints.circuit(session.endpoint(endpoint).endpoint_id)
    session.output.answer(found, columns("state failures until"))
    session.output.listing(None, found.history, _CIRCUIT_HISTORY, "It has never opened.")


@remote(endpoints)
def replay(
    session: Session,
    endpoint: EndpointArgument,
    options: BulkOptions,
    since: Annotated[datetime, option("--since", "TIME", "Events accepted from this time on: 2h", Past)],
    until: Annotated[datetime | None, option("--until", "TIME", "Before this time. [default: now]", Past)] = None,
    event_type: EventType = None,
    status: Annotated[Status | None, flag("--status", "Only events with this status.")] = None,
) -> int:
    """Send the events of a time range again, as new events.

    Example: `doorstep endpoints replay shop --since 2h --type 'order.*' --rate 50`
    """
    client, endpoint_id = session.client.endpoints, session.endpoint(endpoint).endpoint_id
    range: dict[str, Any] = {
        "since": since,
        "until": until or datetime.now(UTC),
        "event_type": event_type,
        "status": status,
    }
    return start(
        session,
        "replay",
        lambda: client.preview_replay(endpoint_id, **range),
        lambda: client.replay(endpoint_id, **range, rate_per_second=options.rate, reason=options.reason),
        options,
    )
