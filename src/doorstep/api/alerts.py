"""Alerts: the list of what is or was wrong, the rules for it, silences, and the channels that people are notified by."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from doorstep.api.answers import all_of, position, shape, time, time_or_none, whole
from doorstep.api.bodies import instant, instant_from
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.components import console_of
from doorstep.errors import InvalidInput
from doorstep.model import alert as model
from doorstep.model.alert import AlertFilter, ChannelKind, Rule
from doorstep.operations.channels import ChannelForm, ChannelView, failed_at
from doorstep.policy.alert_messages import link_to, title_of
from doorstep.schemas.alerts import (
    Alert,
    AlertPage,
    AlertRule,
    AlertRuleIn,
    AlertRulePage,
    AlertsQuery,
    Channel,
    ChannelIn,
    ChannelPage,
    NewChannel,
    Silence,
    SilenceIn,
    SilencePage,
    TestSent,
)
from doorstep.schemas.shape import ReasonIn

_NO_REASON = ReasonIn()
_CHANGEABLE = ("enabled", "threshold", "window_seconds", "minimum", "cooldown_seconds")


def alert_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/alerts", "alerts")
    console = console_of(doorstep.settings)

    @routes.get()
    async def list_alerts(asked: AlertsQuery, caller: Caller) -> AlertPage:
        """Alerts, newest first: those that are open, and those that are over."""
        page = await doorstep.components.alerts.alerts(caller.org_id, _wanted(asked), asked.cursor, asked.limit)
        alerts = tuple(_alert_shown(one, console) for one in page.items)
        return AlertPage(alerts, position(page, asked.limit))

    @routes.get("/{alert_id}")
    async def read_alert(alert_id: UUID, caller: Caller) -> Alert:
        """One alert as it stands."""
        return _alert_shown(await doorstep.components.alerts.alert(caller.org_id, alert_id), console)

    @routes.post("/{alert_id}/acknowledge")
    async def acknowledge_alert(alert_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Alert:
        """Say that you have seen it and see to it. The first who does so stays; nothing else changes."""
        desk = doorstep.components.alerts
        return _alert_shown(await desk.acknowledge(caller.org_id, alert_id, caller.prefix, body.reason), console)

    return routes


def alert_rule_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/alert-rules", "alerts")

    @routes.get()
    async def list_alert_rules(caller: Caller) -> AlertRulePage:
        """The rules that hold: the built-in ones, unless you changed them, and those of single endpoints."""
        rules = all_of(_rule_shown, await doorstep.components.alerts.rules(caller.org_id))
        return AlertRulePage(rules, whole(rules))

    @routes.post()
    async def set_alert_rule(body: AlertRuleIn, caller: Caller) -> AlertRule:
        """Change a rule for your organization, or for one endpoint."""
        desk = doorstep.components.alerts
        changed = await desk.set_rule(caller.org_id, Rule(body.rule), body.endpoint_id, _changes(body), caller.prefix)
        return _rule_shown(changed)

    @routes.delete("/{alert_rule_id}")
    async def reset_alert_rule(alert_rule_id: UUID, caller: Caller) -> None:
        """Undo what was changed: the organization's rule, or the built-in one, holds again."""
        await doorstep.components.alerts.reset_rule(caller.org_id, alert_rule_id, caller.prefix)

    return routes


def silence_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/silences", "alerts")

    @routes.post(status=201)
    async def create_silence(body: SilenceIn, caller: Caller) -> Silence:
        """Tell nobody of alerts for a while. What is still on when it ends is told then."""
        silence = await doorstep.components.alerts.silence(
            caller.org_id,
            caller.prefix,
            until_at=instant(body.until_at, "until_at"),
            from_at=instant_from(body.from_at, "from_at"),
            endpoint_id=body.endpoint_id,
            rule=None if body.rule is None else Rule(body.rule),
            reason=body.reason,
        )
        return _silence_shown(silence)

    @routes.get()
    async def list_silences(caller: Caller) -> SilencePage:
        """Silences in the order of their creation, those that have ended lately too."""
        silences = all_of(_silence_shown, await doorstep.components.alerts.silences(caller.org_id))
        return SilencePage(silences, whole(silences))

    @routes.delete("/{silence_id}")
    async def end_silence(silence_id: UUID, caller: Caller) -> None:
        """End a silence now."""
        await doorstep.components.alerts.end_silence(caller.org_id, silence_id, caller.prefix)

    return routes


def channel_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/channels", "alerts")

    @routes.post(status=201)
    async def create_channel(body: ChannelIn, caller: Caller) -> NewChannel:
        """Create a channel. For a webhook the answer holds the signing secret, which cannot be seen again."""
        desk = doorstep.components.channels
        channel, secret = await desk.create(_form(body), caller.org_id, caller.prefix)
        view = await desk.reading.view(caller.org_id, channel.channel_id)
        shown_once = secret if channel.means is ChannelKind.WEBHOOK else None
        return shape(NewChannel, view.channel, **_channel_standing(view), secret=shown_once)

    @routes.get()
    async def list_channels(caller: Caller) -> ChannelPage:
        """The channels of your organization in the order of their creation."""
        channels = all_of(_channel_shown, await doorstep.components.channels.reading.views(caller.org_id))
        return ChannelPage(channels, whole(channels))

    @routes.get("/{channel_id}")
    async def read_channel(channel_id: UUID, caller: Caller) -> Channel:
        """One channel, and how it fares."""
        return _channel_shown(await doorstep.components.channels.reading.view(caller.org_id, channel_id))

    @routes.post("/{channel_id}/test", status=202)
    async def test_channel(channel_id: UUID, caller: Caller) -> TestSent:
        """Send a message that says that it is a test: once in 5 seconds, and 20 times an hour."""
        test = await doorstep.components.channels.test(caller.org_id, channel_id, caller.prefix)
        return TestSent(channel_id, test.message_id)

    @routes.post("/{channel_id}/resume")
    async def resume_channel(channel_id: UUID, caller: Caller) -> Channel:
        """Send there again after it was disabled: what waits too, unless it is older than a day."""
        desk = doorstep.components.channels
        await desk.resume(caller.org_id, channel_id, caller.prefix)
        return _channel_shown(await desk.reading.view(caller.org_id, channel_id))

    @routes.delete("/{channel_id}")
    async def delete_channel(channel_id: UUID, caller: Caller) -> None:
        """Delete a channel; what still waits for it is dropped."""
        await doorstep.components.channels.delete(caller.org_id, channel_id, caller.prefix)

    return routes


# -- what is asked for -------------------------------------------------------------------------------------------


def _wanted(asked: AlertsQuery) -> AlertFilter:
    return AlertFilter(
        is_open=None if asked.state is None else asked.state == "open",
        rule=None if asked.rule is None else Rule(asked.rule),
        endpoint_id=asked.endpoint_id,
    )


def _changes(body: AlertRuleIn) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in _CHANGEABLE if getattr(body, name) is not None}
    if not given:
        raise InvalidInput("body", "must change something; name at least one of " + ", ".join(_CHANGEABLE))
    return given


def _form(body: ChannelIn) -> ChannelForm:
    return ChannelForm(
        name=body.name,
        kind=ChannelKind(body.kind),
        target=body.target,
        rules=tuple(map(Rule, body.rules)),
        endpoint_ids=body.endpoint_ids,
        recoveries=body.recoveries,
    )


# -- shapes ------------------------------------------------------------------------------------------------------


def _alert_shown(alert: model.Alert, console: str) -> Alert:
    return shape(
        Alert,
        alert,
        state="open" if alert.is_open else "recovered",
        title=title_of(alert),
        error_code=alert.code,
        error_reason=alert.reason,
        last_seen_at=time(alert.seen_at),
        acknowledged_by=alert.acknowledged_by or None,
        link=link_to(alert, console),
    )


def _rule_shown(rule: model.AlertRule) -> AlertRule:
    """Without what the rule does not use."""
    unused: dict[str, None] = {} if rule.rule in model.MEASURED else {"threshold": None}
    if rule.rule is not Rule.FAILURE_RATE:
        unused |= {"window_seconds": None, "minimum": None}
    return shape(AlertRule, rule, alert_rule_id=rule.arrangement_id if rule.version else None, **unused)


def _silence_shown(silence: model.Silence) -> Silence:
    return shape(Silence, silence)


def _channel_shown(view: ChannelView) -> Channel:
    return shape(Channel, view.channel, **_channel_standing(view))


def _channel_standing(view: ChannelView) -> dict[str, Any]:
    """How it stands, and what may be shown of where it goes."""
    failed = view.last_failed
    return {
        "kind": view.channel.means,
        "target": view.channel.shown,
        "state": "active" if view.endpoint.state == "active" else "disabled",
        "state_reason": view.endpoint.state_reason,
        "failures": view.circuit.failures,
        "last_delivered_at": time_or_none(view.last_delivered_at),
        "last_error": None if failed is None else f"{failed.code}: {failed.reason}",
        "last_failed_at": None if failed is None else time_or_none(failed_at(failed)),
        "last_test": view.came_of_test,
        "last_test_at": None if view.last_test is None else time(view.last_test.created_at),
    }
