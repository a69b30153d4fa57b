"""Alerts, their rules, silences, and notification channels."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from doorstep.api.codec import all_of, instant, instant_from, position, shape, shapes, time, time_or_none, whole
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.components import console_of
from doorstep.errors import InvalidInput
from doorstep.model import alert as model
from doorstep.model.alert import AlertFilter, ChannelKind, Rule
from doorstep.operations.channels import ChannelForm, ChannelView, failed_at
from doorstep.policy.alert_messages import link_to, title_of
from doorstep.schemas import alerts as schemas
from doorstep.schemas.shape import ReasonIn

_NO_REASON = ReasonIn()
_CHANGEABLE = ("enabled", "threshold", "window_seconds", "minimum", "cooldown_seconds")


def alert_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/alerts", "alerts")
    console = console_of(doorstep.settings)

    @routes.get()
    async def list_alerts(query: schemas.AlertsQuery, caller: Caller) -> schemas.AlertPage:
        """Open and ended alerts, newest first."""
        page = await doorstep.components.alerts.alerts(caller.org_id, _filter(query), query.cursor, query.limit)
        alerts = tuple(_alert_shown(one, console) for one in page.items)
        return schemas.AlertPage(alerts, position(page, query.limit))

    @routes.get("/{alert_id}")
    async def read_alert(alert_id: UUID, caller: Caller) -> schemas.Alert:
        """One alert in its current state."""
        return _alert_shown(await doorstep.components.alerts.alert(caller.org_id, alert_id), console)

    @routes.post("/{alert_id}/acknowledge")
    async def acknowledge_alert(alert_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> schemas.Alert:
        """Acknowledge an alert, to show that you are working on it. Later acknowledgements do not replace the first."""
        service = doorstep.components.alerts
        return _alert_shown(await service.acknowledge(caller.org_id, alert_id, caller.prefix, body.reason), console)

    return routes


def alert_rule_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/alert-rules", "alerts")

    @routes.get()
    async def list_alert_rules(caller: Caller) -> schemas.AlertRulePage:
        """The rules in effect: the built-in rules, with your changes, and the rules of single endpoints."""
        return whole(schemas.AlertRulePage, all_of(_rule_shown, await doorstep.components.alerts.rules(caller.org_id)))

    @routes.post()
    async def set_alert_rule(body: schemas.AlertRuleIn, caller: Caller) -> schemas.AlertRule:
        """Change a rule for your organization, or for one endpoint."""
        service = doorstep.components.alerts
        changed = await service.set_rule(
            caller.org_id, Rule(body.rule), body.endpoint_id, _changes(body), caller.prefix
        )
        return _rule_shown(changed)

    @routes.delete("/{alert_rule_id}")
    async def reset_alert_rule(alert_rule_id: UUID, caller: Caller) -> None:
        """Reset a changed rule: the organization's rule, or the built-in one, applies again."""
        await doorstep.components.alerts.reset_rule(caller.org_id, alert_rule_id, caller.prefix)

    return routes


def silence_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/silences", "alerts")

    @routes.post(status=201)
    async def create_silence(body: schemas.SilenceIn, caller: Caller) -> schemas.Silence:
        """Suppress notifications for a while. When the silence ends, notifications are sent for alerts that are still
        open."""
        silence = await doorstep.components.alerts.silence(
            caller.org_id,
            caller.prefix,
            until_at=instant(body.until_at, "until_at"),
            from_at=instant_from(body.from_at, "from_at"),
            endpoint_id=body.endpoint_id,
            rule=None if body.rule is None else Rule(body.rule),
            reason=body.reason,
        )
        return shape(schemas.Silence, silence)

    @routes.get()
    async def list_silences(caller: Caller) -> schemas.SilencePage:
        """Silences, oldest first, including those that ended recently."""
        return whole(
            schemas.SilencePage, shapes(schemas.Silence, await doorstep.components.alerts.silences(caller.org_id))
        )

    @routes.delete("/{silence_id}")
    async def end_silence(silence_id: UUID, caller: Caller) -> None:
        """End a silence now."""
        await doorstep.components.alerts.end_silence(caller.org_id, silence_id, caller.prefix)

    return routes


def channel_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/channels", "alerts")

    @routes.post(status=201)
    async def create_channel(body: schemas.ChannelIn, caller: Caller) -> schemas.NewChannel:
        """Create a channel. For a webhook the response contains the signing secret, which is shown only once."""
        service = doorstep.components.channels
        channel, secret = await service.create(_form(body), caller.org_id, caller.prefix)
        view = await service.reader.view(caller.org_id, channel.channel_id)
        shown_once = secret if channel.means is ChannelKind.WEBHOOK else None
        return shape(schemas.NewChannel, view.channel, **_channel_fields(view), secret=shown_once)

    @routes.get()
    async def list_channels(caller: Caller) -> schemas.ChannelPage:
        """The channels of your organization, oldest first."""
        views = await doorstep.components.channels.reader.views(caller.org_id)
        return whole(schemas.ChannelPage, all_of(_channel_shown, views))

    @routes.get("/{channel_id}")
    async def read_channel(channel_id: UUID, caller: Caller) -> schemas.Channel:
        """One channel and its health."""
        return _channel_shown(await doorstep.components.channels.reader.view(caller.org_id, channel_id))

    @routes.post("/{channel_id}/test", status=202)
    async def test_channel(channel_id: UUID, caller: Caller) -> schemas.TestSent:
        """Send a test message. Limits: one per 5 seconds, and 60 per hour for all channels of the organization
        together."""
        test = await doorstep.components.channels.test(caller.org_id, channel_id, caller.prefix)
        return schemas.TestSent(channel_id, test.message_id)

    @routes.post("/{channel_id}/resume")
    async def resume_channel(channel_id: UUID, caller: Caller) -> schemas.Channel:
        """Resume a disabled channel. Waiting messages are sent too, unless they are older than a day."""
        service = doorstep.components.channels
        await service.resume(caller.org_id, channel_id, caller.prefix)
        return _channel_shown(await service.reader.view(caller.org_id, channel_id))

    @routes.delete("/{channel_id}")
    async def delete_channel(channel_id: UUID, caller: Caller) -> None:
        """Delete a channel; its waiting messages are dropped."""
        await doorstep.components.channels.delete(caller.org_id, channel_id, caller.prefix)

    return routes


# -- from requests -------------------------------------------------------------------------------------------


def _filter(query: schemas.AlertsQuery) -> AlertFilter:
    return AlertFilter(
        is_open=None if query.state is None else query.state == "open",
        rule=None if query.rule is None else Rule(query.rule),
        endpoint_id=query.endpoint_id,
    )


def _changes(body: schemas.AlertRuleIn) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in _CHANGEABLE if getattr(body, name) is not None}
    if not given:
        raise InvalidInput("body", "must change something; name at least one of " + ", ".join(_CHANGEABLE))
    return given


def _form(body: schemas.ChannelIn) -> ChannelForm:
    return ChannelForm(
        name=body.name,
        kind=ChannelKind(body.kind),
        target=body.target,
        rules=tuple(map(Rule, body.rules)),
        endpoint_ids=body.endpoint_ids,
        recoveries=body.recoveries,
    )


# -- shapes ------------------------------------------------------------------------------------------------------


def _alert_shown(alert: model.Alert, console: str) -> schemas.Alert:
    return shape(
        schemas.Alert,
        alert,
        state="open" if alert.is_open else "recovered",
        title=title_of(alert),
        error_code=alert.code,
        error_reason=alert.reason,
        last_seen_at=time(alert.seen_at),
        acknowledged_by=alert.acknowledged_by or None,
        link=link_to(alert, console),
    )


def _rule_shown(rule: model.AlertRule) -> schemas.AlertRule:
    """The rule in a response, without settings that it does not use."""
    unused: dict[str, None] = {} if rule.rule in model.MEASURED else {"threshold": None}
    if rule.rule is not Rule.FAILURE_RATE:
        unused |= {"window_seconds": None, "minimum": None}
    return shape(schemas.AlertRule, rule, alert_rule_id=rule.config_id if rule.version else None, **unused)


def _channel_shown(view: ChannelView) -> schemas.Channel:
    return shape(schemas.Channel, view.channel, **_channel_fields(view))


def _channel_fields(view: ChannelView) -> dict[str, Any]:
    """The channel's state, and the part of its target that may be shown."""
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
        "last_test": view.test_result,
        "last_test_at": None if view.last_test is None else time(view.last_test.created_at),
    }
