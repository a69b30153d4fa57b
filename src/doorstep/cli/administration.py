"""`doorstep keys`, `orgs`, `audit` and `console`; `alerts`, `alert-rules`, `silences` and `channels`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, NamedTuple

import typer

from doorstep.cli.commands import Paging, Session, none_of, remote
from doorstep.cli.options import Future, OfEndpoint, Reason, Since, Until, Yes, complete_endpoint, flag, option
from doorstep.cli.output import columns, duration
from doorstep.schemas.accounts import RoleName
from doorstep.schemas.alerts import AlertState, ChannelKindName, RuleName

commands = typer.Typer()
keys = typer.Typer()
orgs = typer.Typer()
alerts = typer.Typer()
rules = typer.Typer()
silences = typer.Typer()
channels = typer.Typer()


# -- keys, organizations, audit log and console ------------------------------------------------------------

_SHOWN_ONCE = "The key is shown only once."
_KEYS = columns("key_id name role prefix", spare="user_id created_at expires_at revoked_at")
_ORGS = columns("org_id name created_at")
_AUDIT = columns("at actor action result", spare="reason subjects actor_id")
OrgArgument = Annotated[str, typer.Argument(metavar="ORG", help="The organization's id or name.")]


@remote(keys, "list")
def list_keys(session: Session, paging: Paging) -> None:
    """List the organization's keys. Only a prefix and a hash of each key are stored, not the key itself."""
    session.show_page(paging.fetch(session.client.keys.page), "keys", _KEYS, "There are no keys.")


@remote(keys, "create")
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    role: Annotated[RoleName, flag("--role", "What it may do.")],
    expires: Annotated[datetime | None, option("--expires", "TIME", "When the key stops working.", Future)] = None,
    user: Annotated[str | None, option("--user", "USER_ID", "Restrict it to the events of this user.")] = None,
) -> None:
    """Create a key.

    Example: `doorstep keys create billing --role publisher`
    """
    session.output.answer(session.client.keys.create(name, role, expires_at=expires, user_id=user))
    session.output.note(_SHOWN_ONCE)


@remote(keys)
def revoke(
    session: Session,
    key_id: Annotated[str, typer.Argument(help="The key's id; `keys list` shows it.")],
    yes: Yes = False,
) -> None:
    """Revoke a key. It stops working immediately."""
    session.output.confirm(f"Revoke key {key_id}?", yes)
    session.client.keys.revoke(key_id)
    session.output.line({"key_id": key_id, "revoked": True}, f"{key_id}  revoked")


@remote(orgs, "list")
def list_orgs(session: Session, paging: Paging) -> None:
    """List organizations."""
    session.show_page(paging.fetch(session.client.orgs.page), "orgs", _ORGS, "There are no organizations.")


@remote(orgs, "rename")
def rename_org(session: Session, org: OrgArgument, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Rename an organization.

    Example: `doorstep orgs rename shop "The shop"`
    """
    renamed = session.client.orgs.rename(session.org_id(org), name)
    session.output.line(renamed, f"{renamed.org_id}  {renamed.name}")


@remote(orgs, "delete")
def delete_org(
    session: Session,
    org: OrgArgument,
    force: Annotated[bool, flag("--force", "Even with open deliveries, which become dead letters.")] = False,
    yes: Yes = False,
) -> None:
    """Delete an organization. Its keys stop working, and nobody can reach its data any more."""
    org_id = session.org_id(org)
    session.output.confirm(f"Delete organization {org} with all its keys, endpoints and events?", yes)
    session.client.orgs.delete(org_id, force=force)
    session.output.line({"org_id": org_id, "deleted": True}, f"{org_id}  deleted")


@remote(orgs, "create")
def create_org(session: Session, name: Annotated[str, typer.Argument(help="The organization's name.")]) -> None:
    """Create an organization with its first admin key."""
    created = session.client.orgs.create(name)
    if session.output.as_json:
        session.output.json(created)
        return
    session.output.answer({"org_id": created.org_id, "name": created.name, "admin key": created.admin_key.key})
    session.output.note(_SHOWN_ONCE)


@remote(commands)
def audit(
    session: Session,
    paging: Paging,
    actor: Annotated[
        str | None, flag("--actor", "Only actions of this actor: the name of a key or service, or a key's prefix.")
    ] = None,
    action: Annotated[str | None, flag("--action", "Only this action.")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Show the audit log: who did what, when, to which objects, with what result; newest first.

    Example: `doorstep audit --actor lena --since 1d`
    """
    filters = {"actor": actor, "action": action, "since": since, "until": until}
    page = paging.fetch(session.client.audit.page, **filters)
    session.show_page(page, "audit", _AUDIT, none_of("actions", paging, "The audit log is empty.", **filters))


@remote(commands)
def console(
    session: Session,
    open_it: Annotated[bool, flag("--open", "Also open it in this machine's browser.")] = False,
) -> None:
    """Print a link that signs you in to the console with your key; it works once, within 30 minutes."""
    link = session.client.sign_in_links.create()
    url = session.url.rstrip("/") + link.path
    session.output.line({"url": url, "expires_at": link.expires_at}, url)
    if open_it and typer.launch(url):
        session.output.note("No browser was found; open it yourself.")


# -- alerts ------------------------------------------------------------------------------------------------

OfRule = Annotated[RuleName | None, flag("--rule", "Only this rule.")]
AlertId = Annotated[str, typer.Argument(help="The alert's id.")]

_ALERTS = columns(
    "alert_id state what error_code count since",
    spare="until acknowledged_by error_reason",
    what="title",
    since="opened_at",
    until="ended_at",
)


@remote(alerts, "list")
def list_alerts(
    session: Session,
    paging: Paging,
    state: Annotated[AlertState | None, flag("--state", "Only alerts in this state.")] = None,
    rule: OfRule = None,
    endpoint: OfEndpoint = None,
) -> None:
    """List alerts, newest first.

    Example: `doorstep alerts list --state open`
    """
    filters = {"state": state, "rule": rule, "endpoint_id": session.endpoint_id(endpoint)}
    page = paging.fetch(session.client.alerts.page, **filters)
    session.show_page(page, "alerts", _ALERTS, none_of("alerts", paging, **filters))


@remote(alerts, "show")
def show_alert(session: Session, alert_id: AlertId) -> None:
    """Show an alert."""
    session.output.answer(session.client.alerts.read(alert_id))


@remote(alerts)
def acknowledge(session: Session, alert_id: AlertId, reason: Reason = None) -> None:
    """Acknowledge an alert: you have seen it and are working on it."""
    seen = session.client.alerts.acknowledge(alert_id, reason=reason)
    session.output.line(seen, f"{alert_id}  acknowledged by {seen.acknowledged_by}")


# -- rules -------------------------------------------------------------------------------------------------

_RULES = columns(
    "rule endpoint_id on threshold window minimum cooldown",
    spare="id",
    on="enabled",
    window=lambda one: duration(one.window_seconds),
    cooldown=lambda one: duration(one.cooldown_seconds),
    id="alert_rule_id",
)


@remote(rules, "list")
def list_rules(session: Session) -> None:
    """List the rules in effect: the built-in rules, with your changes, and the rules of individual endpoints."""
    session.show_page(session.client.alert_rules.page(), "alert_rules", _RULES, "There are no rules.")


class RuleChange(NamedTuple):
    """The options of a rule change. The fields have the same names as in the API."""

    endpoint_id: OfEndpoint = None
    enabled: Annotated[bool | None, flag("--on/--off", "Turn the rule on or off.")] = None
    threshold: Annotated[
        float | None, flag("--threshold", "Raise an alert above this: percent, dead letters or seconds.")
    ] = None
    window_seconds: Annotated[float | None, option("--window", "SECONDS", "failure_rate: the period it measures.")] = (
        None
    )
    minimum: Annotated[int | None, option("--minimum", "N", "failure_rate: ignore periods with fewer deliveries.")] = (
        None
    )
    cooldown_seconds: Annotated[
        float | None, option("--cooldown", "SECONDS", "Do not notify again within this time.")
    ] = None


@remote(rules, "set")
def set_rule(session: Session, rule: Annotated[RuleName, typer.Argument(help="The rule.")], change: RuleChange) -> None:
    """Change a rule for the organization, or for one endpoint.

    Example: `doorstep alert-rules set failure_rate --threshold 2 --endpoint shop`
    """
    change = change._replace(endpoint_id=session.endpoint_id(change.endpoint_id))
    session.output.answer(session.client.alert_rules.set(rule, **change._asdict()))


@remote(rules)
def reset(
    session: Session, alert_rule_id: Annotated[str, typer.Argument(help="The rule's id; `alert-rules list` shows it.")]
) -> None:
    """Undo a rule change, so that the organization's rule or the built-in rule applies again."""
    session.client.alert_rules.reset(alert_rule_id)
    session.output.line({"alert_rule_id": alert_rule_id, "reset": True}, f"{alert_rule_id}  reset")


# -- silences ----------------------------------------------------------------------------------------------

_SILENCES = columns("silence_id from_at until_at rule reason", spare="endpoint_id actor")


@remote(silences, "list")
def list_silences(session: Session) -> None:
    """List silences, including those that ended recently."""
    session.show_page(session.client.silences.page(), "silences", _SILENCES, "There are no silences.")


@remote(silences, "create")
def create_silence(
    session: Session,
    until: Annotated[datetime, option("--until", "TIME", "When it ends.", Future)],
    begin: Annotated[
        datetime | None, option("--from", "TIME", "When the silence begins. [default: now]", Future)
    ] = None,
    endpoint: OfEndpoint = None,
    rule: OfRule = None,
    reason: Reason = None,
) -> None:
    """Suppress alert notifications until a given time, starting now or at a later time.

    Example: `doorstep silences create --until 2h --endpoint shop --reason "planned work"`
    """
    endpoint_id = session.endpoint_id(endpoint)
    created = session.client.silences.create(until, from_at=begin, endpoint_id=endpoint_id, rule=rule, reason=reason)
    session.output.answer(created)


@remote(silences, "end")
def end_silence(session: Session, silence_id: Annotated[str, typer.Argument(help="The silence's id.")]) -> None:
    """End a silence now."""
    session.client.silences.end(silence_id)
    session.output.line({"silence_id": silence_id, "ended": True}, f"{silence_id}  ended")


# -- channels ----------------------------------------------------------------------------------------------

ChannelId = Annotated[str, typer.Argument(help="The channel's id; `channels list` shows it.")]

_CHANNELS = columns("channel_id name kind target state last_delivered_at failures", spare="last_error")
_CHANNEL_KINDS = columns("kind available reason")


@remote(channels, "list")
def list_channels(session: Session) -> None:
    """List the channels and their health."""
    empty = "There are no channels, so nobody is notified of alerts."
    session.show_page(session.client.channels.page(), "channels", _CHANNELS, empty)


@remote(channels, "kinds")
def list_channel_kinds(session: Session) -> None:
    """List the kinds of channels. If one is not available on this server, the reason says why."""
    session.show_page(session.client.channels.kinds(), "kinds", _CHANNEL_KINDS, "")


@remote(channels, "show")
def show_channel(session: Session, channel_id: ChannelId) -> None:
    """Show a channel, the time of its last delivered message, and its last error."""
    session.output.answer(session.client.channels.read(channel_id))


@remote(channels)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="The channel's name.")],
    kind: Annotated[ChannelKindName, flag("--kind", "The kind of channel.")],
    target: Annotated[str, option("--to", "TARGET", "A URL, or e-mail addresses separated by commas.")],
    rule: Annotated[list[str] | None, flag("--rule", "Only alerts of this rule; repeatable.")] = None,
    endpoint: Annotated[
        list[str] | None,
        option(
            "--endpoint",
            None,
            "Only alerts about this endpoint, by id or name; repeatable.",
            autocompletion=complete_endpoint,
        ),
    ] = None,
    no_recoveries: Annotated[bool, flag("--no-recoveries", "Do not send a message when an alert ends.")] = False,
) -> None:
    """Create a channel. The signing secret of a webhook is shown only once.

    Example: `doorstep channels create operators --kind email --to ops@shop.example`
    """
    endpoint_ids = [str(session.endpoint_id(one)) for one in endpoint or ()]
    recoveries = False if no_recoveries else None
    created = session.client.channels.create(
        name, kind, target, rules=rule, endpoint_ids=endpoint_ids or None, recoveries=recoveries
    )
    session.output.answer(created)


@remote(channels)
def test(session: Session, channel_id: ChannelId) -> None:
    """Send a test message. `channels show` shows whether it arrived."""
    sent = session.client.channels.test(channel_id)
    session.output.line(sent, f"{channel_id}  a test message is on its way")


@remote(channels)
def resume(session: Session, channel_id: ChannelId) -> None:
    """Resume a channel that Doorstep disabled because its target was gone or had failed for days."""
    resumed = session.client.channels.resume(channel_id)
    session.output.line(resumed, f"{channel_id}  {resumed.state}")


@remote(channels)
def delete(session: Session, channel_id: ChannelId, yes: Yes = False) -> None:
    """Delete a channel."""
    session.output.confirm(f"Delete channel {channel_id}?", yes)
    session.client.channels.delete(channel_id)
    session.output.line({"channel_id": channel_id, "deleted": True}, f"{channel_id}  deleted")
