"""`doorstep policy`: what a retry policy means."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from doorstep.cli.connecting import connect
from doorstep.cli.endpoint_names import endpoint_named
from doorstep.cli.exits import exit_code_of
from doorstep.cli.options import Json, Key, Past, Url, output_for, parsed_by, settings_from, share, span_seconds
from doorstep.clock import AnchoredClock, from_datetime
from doorstep.config import Settings
from doorstep.errors import ConfigError
from doorstep.model.endpoint import RetryPolicy
from doorstep.policy.retry import BUILT_IN
from doorstep.policy.routing import most_specific

app = typer.Typer(no_args_is_help=True)


@app.callback()
def policy() -> None:
    """See what a retry policy means."""


def _known(incomplete: str) -> list[str]:
    return [name for name in BUILT_IN if name.startswith(incomplete)]


@app.command()
def explain(
    words: Annotated[
        str | None,
        typer.Argument(
            metavar="POLICY",
            autocompletion=_known,
            help=f"A policy's name ({', '.join(BUILT_IN)}), or its pauses: 5s,5m,2h.",
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="ENDPOINT", help="The policy of this endpoint (id or name) instead."),
    ] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="With --endpoint: for this event type.")
    ] = None,
    jitter: Annotated[
        float | None, typer.Option("--jitter", metavar="SHARE", parser=parsed_by(share), help="Another jitter: 20%")
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option("--deadline", metavar="SPAN", parser=parsed_by(span_seconds), help="Another deadline: 2d"),
    ] = None,
    accepted: Annotated[
        datetime | None,
        typer.Option("--accepted", metavar="TIME", parser=Past, help="When the event is accepted [default: now]."),
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Print the exact schedule: when each try comes, the earliest and latest by the jitter, and the total.

    Examples: `doorstep policy explain patient`, `doorstep policy explain 5s,5m,2h --deadline 1d`,
    `doorstep policy explain --endpoint shop`
    """

    from doorstep.cli import policy_schedule

    def run() -> None:
        settings = settings_from(url=url, api_key=key)
        chosen = _chosen(words, endpoint, event_type, settings)
        at = AnchoredClock().now() if accepted is None else from_datetime(accepted)
        policy_schedule.explain(policy_schedule.changed(chosen, jitter, deadline), settings, at, output_for(as_json))

    raise typer.Exit(exit_code_of(run))


def _chosen(words: str | None, endpoint: str | None, event_type: str | None, settings: Settings) -> RetryPolicy:
    from doorstep.cli import policy_schedule

    if words is not None and endpoint is None:
        return policy_schedule.policy_of(words, settings)
    if endpoint is not None and words is None:
        return _of_endpoint(endpoint, event_type, settings)
    raise ConfigError("policy explain needs a policy or --endpoint, exactly one of the two")


def _of_endpoint(name: str, event_type: str | None, settings: Settings) -> RetryPolicy:
    """What the endpoint was given; `standard` as this machine's settings have it where it was given nothing."""
    with connect(settings) as client:
        found = endpoint_named(client, name)
    pattern = most_specific(found.policy_by_event_type, event_type) if event_type else None
    policy = found.policy if pattern is None else found.policy_by_event_type[pattern]
    if policy is None:
        return RetryPolicy(settings.retry_delays, name="standard")
    return RetryPolicy(policy.delays, policy.jitter, policy.deadline_seconds, policy.name)
