"""`doorstep alerts`, `alert-rules` and `silences`: what was the matter, and when that is told."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from doorstep.cli import columns
from doorstep.cli.endpoint_names import endpoint_id_of
from doorstep.cli.options import Future, OfEndpoint, Reason
from doorstep.cli.remote import Paging, Rows, Session, gather, remote
from doorstep.schemas.alerts import AlertState, RuleName

alerts = typer.Typer(no_args_is_help=True, help="See what is or was the matter, and say that you see to it.")
rules = typer.Typer(no_args_is_help=True, help="See and change when alerts fire.")
silences = typer.Typer(no_args_is_help=True, help="Have nobody told of alerts for a while.")

OfRule = Annotated[RuleName | None, typer.Option("--rule", help="Only this rule.")]


# -- alerts ------------------------------------------------------------------------------------------------


@remote(alerts, "list")
def list_alerts(
    session: Session,
    paging: Paging,
    state: Annotated[AlertState | None, typer.Option("--state", help="Only those.")] = None,
    rule: OfRule = None,
    endpoint: OfEndpoint = None,
) -> None:
    """List alerts, newest first.

    Example: `doorstep alerts list --state open`
    """
    named = endpoint_id_of(session.client, endpoint)
    rows = gather(session.client.alerts.page, paging, state=state, rule=rule, endpoint_id=named)
    rows.show(session.output, "alerts", columns.ALERTS, "There are no alerts.")


@remote(alerts)
def show(session: Session, alert_id: Annotated[str, typer.Argument(help="The alert's id.")]) -> None:
    """Show one as it stands."""
    session.output.answer(session.client.alerts.read(alert_id))


@remote(alerts)
def acknowledge(
    session: Session, alert_id: Annotated[str, typer.Argument(help="The alert's id.")], reason: Reason = None
) -> None:
    """Say that you have seen it and see to it."""
    seen = session.client.alerts.acknowledge(alert_id, reason=reason)
    session.output.line(seen, f"{alert_id}  acknowledged by {seen.acknowledged_by}")


# -- rules -------------------------------------------------------------------------------------------------


@remote(rules, "list")
def list_rules(session: Session) -> None:
    """List the rules that hold: the built-in ones unless they were changed, and those of single endpoints."""
    page = session.client.alert_rules.page()
    rows = Rows(list(page.items), page.pagination)
    rows.show(session.output, "alert_rules", columns.ALERT_RULES, "There are none.")


@remote(rules, "set")
def set_rule(
    session: Session,
    rule: Annotated[RuleName, typer.Argument(help="Which rule.")],
    endpoint: OfEndpoint = None,
    enabled: Annotated[bool | None, typer.Option("--on/--off", help="Whether it fires at all.")] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="It fires at more than this: percent, dead letters or seconds.")
    ] = None,
    window_seconds: Annotated[
        float | None, typer.Option("--window", metavar="SECONDS", help="failure_rate: how far it looks back.")
    ] = None,
    minimum: Annotated[
        int | None, typer.Option("--minimum", metavar="N", help="failure_rate: with fewer deliveries nothing is said.")
    ] = None,
    cooldown_seconds: Annotated[
        float | None, typer.Option("--cooldown", metavar="SECONDS", help="Not told again within this time.")
    ] = None,
) -> None:
    """Change a rule for the organization, or for one endpoint.

    Example: `doorstep alert-rules set failure_rate --threshold 2 --endpoint shop`
    """
    named = endpoint_id_of(session.client, endpoint)
    changed = session.client.alert_rules.set(
        rule,
        endpoint_id=named,
        enabled=enabled,
        threshold=threshold,
        window_seconds=window_seconds,
        minimum=minimum,
        cooldown_seconds=cooldown_seconds,
    )
    session.output.answer(changed)


@remote(rules)
def reset(
    session: Session, alert_rule_id: Annotated[str, typer.Argument(help="The rule's id; `alert-rules list` shows it.")]
) -> None:
    """Undo what was changed: what is more general holds again."""
    session.client.alert_rules.reset(alert_rule_id)
    session.output.line({"alert_rule_id": alert_rule_id, "reset": True}, f"{alert_rule_id}  reset")


# -- silences ----------------------------------------------------------------------------------------------


@remote(silences, "list")
def list_silences(session: Session) -> None:
    """List silences, those that have ended lately too."""
    page = session.client.silences.page()
    Rows(list(page.items), page.pagination).show(session.output, "silences", columns.SILENCES, "There are none.")


@remote(silences, "create")
def create_silence(
    session: Session,
    until: Annotated[datetime, typer.Option("--until", metavar="TIME", parser=Future, help="When it ends.")],
    begin: Annotated[
        datetime | None, typer.Option("--from", metavar="TIME", parser=Future, help="When it begins; else now.")
    ] = None,
    endpoint: OfEndpoint = None,
    rule: OfRule = None,
    reason: Reason = None,
) -> None:
    """Have nobody told of alerts until a time; from now on, or from a later time.

    Example: `doorstep silences create --until 2h --endpoint shop --reason "planned work"`
    """
    named = endpoint_id_of(session.client, endpoint)
    made = session.client.silences.create(until, from_at=begin, endpoint_id=named, rule=rule, reason=reason)
    session.output.answer(made)


@remote(silences)
def end(session: Session, silence_id: Annotated[str, typer.Argument(help="The silence's id.")]) -> None:
    """End one now."""
    session.client.silences.end(silence_id)
    session.output.line({"silence_id": silence_id, "ended": True}, f"{silence_id}  ended")
