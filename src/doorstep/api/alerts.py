"""Alerts, their rules, silences, and notification channels."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import structs

from doorstep.api.codec import all_of, instant, instant_from, position, whole
from doorstep.api.routing import ApiRequest, Routes
from doorstep.components import console_of
from doorstep.errors import InvalidInput
from doorstep.model import alert as model
from doorstep.model.alert import AlertFilter, ChannelKind, Rule
from doorstep.model.org import Permission
from doorstep.operations.channels import ChannelForm, ChannelView, failed_at
from doorstep.operations.shapes import shape, time, time_or_none
from doorstep.policy.alert_messages import link_to, title_of
from doorstep.schemas import alerts as schemas
from doorstep.schemas.shape import ReasonIn

_NO_REASON = ReasonIn()
_CHANGEABLE = ("enabled", "threshold", "window_seconds", "minimum", "cooldown_seconds")

routes = Routes("/v1", "alerts")


@routes.get("/alerts", Permission.LOOK)
async def list_alerts(query: schemas.AlertsQuery, request: ApiRequest) -> schemas.AlertPage:
    """Open and ended alerts, newest first."""
    filter = AlertFilter(
        is_open=None if query.state is None else query.state == "open",
        rule=None if query.rule is None else Rule(query.rule),
        endpoint_id=query.endpoint_id,
    )
    page = await request.components.alerts.alerts(request.org_id, filter, query.cursor, query.limit)
    alerts = [await _alert_shown(one, request) for one in page.items]
    return schemas.AlertPage(tuple(alerts), pagination=position(page, query.limit))


@routes.get("/alerts/{alert_id}", Permission.LOOK)
async def read_alert(alert_id: UUID, request: ApiRequest) -> schemas.Alert:
    """One alert in its current state."""
    alert = await request.components.alerts.alert(request.org_id, alert_id)
    return await _alert_shown(alert, request)


@routes.post("/alerts/{alert_id}/acknowledge", Permission.ACT, conflict=True)
async def acknowledge_alert(alert_id: UUID, request: ApiRequest, body: ReasonIn = _NO_REASON) -> schemas.Alert:
    """Acknowledge an alert, to show that you are working on it. Later acknowledgements do not replace the first."""
    alerts = request.components.alerts
    alert = await alerts.acknowledge(request.org_id, alert_id, request.actor, body.reason)
    return await _alert_shown(alert, request)


@routes.get("/alert-rules", Permission.LOOK)
async def list_alert_rules(request: ApiRequest) -> schemas.AlertRulePage:
    """The rules in effect: the built-in rules with your changes, and the rules for individual endpoints."""
    return whole(schemas.AlertRulePage, all_of(_rule_shown, await request.components.alerts.rules(request.org_id)))


@routes.post("/alert-rules", Permission.ACT, conflict=True)
async def set_alert_rule(body: schemas.AlertRuleIn, request: ApiRequest) -> schemas.AlertRule:
    """Change a rule for your organization, or for one endpoint."""
    service = request.components.alerts
    changed = await service.set_rule(request.org_id, Rule(body.rule), body.endpoint_id, _changes(body), request.actor)
    return _rule_shown(changed)


@routes.delete("/alert-rules/{alert_rule_id}", Permission.ACT)
async def reset_alert_rule(alert_rule_id: UUID, request: ApiRequest) -> None:
    """Reset a changed rule, so that the organization's rule or the built-in rule applies again."""
    await request.components.alerts.reset_rule(request.org_id, alert_rule_id, request.actor)


@routes.post("/silences", Permission.ACT, conflict=True, status=201)
async def create_silence(body: schemas.SilenceIn, request: ApiRequest) -> schemas.Silence:
    """Suppress notifications for a while. When the silence ends, notifications are sent for alerts that are still
    open."""
    silence = await request.components.alerts.silence(
        request.org_id,
        request.actor,
        until_at=instant(body.until_at, "until_at"),
        from_at=instant_from(body.from_at, "from_at"),
        endpoint_id=body.endpoint_id,
        rule=None if body.rule is None else Rule(body.rule),
        reason=body.reason,
    )
    return shape(schemas.Silence, silence, **await request.who(silence.actor))


@routes.get("/silences", Permission.LOOK)
async def list_silences(request: ApiRequest) -> schemas.SilencePage:
    """Silences, oldest first, including those that ended recently."""
    silences = await request.components.alerts.silences(request.org_id)
    shown = [shape(schemas.Silence, one, **await request.who(one.actor)) for one in silences]
    return whole(schemas.SilencePage, tuple(shown))


@routes.delete("/silences/{silence_id}", Permission.ACT)
async def end_silence(silence_id: UUID, request: ApiRequest) -> None:
    """End a silence now."""
    await request.components.alerts.end_silence(request.org_id, silence_id, request.actor)


@routes.post("/channels", Permission.ACT, conflict=True, status=201)
async def create_channel(body: schemas.ChannelIn, request: ApiRequest) -> schemas.NewChannel:
    """Create a channel. For a webhook the response contains the signing secret, which is shown only once."""
    service = request.components.channels
    converted = {"kind": ChannelKind(body.kind), "rules": tuple(map(Rule, body.rules))}
    form = ChannelForm(**structs.asdict(body) | converted)
    channel, secret = await service.create(form, request.org_id, request.actor)
    view = await service.reader.view(request.org_id, channel.channel_id)
    shown_once = secret if channel.means is ChannelKind.WEBHOOK else None
    return shape(schemas.NewChannel, view.channel, **_channel_fields(view), secret=shown_once)


@routes.get("/channels", Permission.LOOK)
async def list_channels(request: ApiRequest) -> schemas.ChannelPage:
    """The channels of your organization, oldest first."""
    views = await request.components.channels.reader.views(request.org_id)
    return whole(schemas.ChannelPage, all_of(_channel_shown, views))


@routes.get("/channel-kinds", Permission.LOOK)
async def list_channel_kinds(request: ApiRequest) -> schemas.ChannelKindPage:
    """The kinds of channels. E-mail needs a mail server and Apprise an optional package; the reason says so."""
    unavailable = request.components.channels.unavailable
    kinds = tuple(schemas.ChannelKind(kind, kind not in unavailable, unavailable.get(kind)) for kind in ChannelKind)
    return whole(schemas.ChannelKindPage, kinds)


@routes.get("/channels/{channel_id}", Permission.LOOK)
async def read_channel(channel_id: UUID, request: ApiRequest) -> schemas.Channel:
    """One channel and its health."""
    return _channel_shown(await request.components.channels.reader.view(request.org_id, channel_id))


@routes.post("/channels/{channel_id}/test", Permission.ACT, conflict=True, status=202)
async def test_channel(channel_id: UUID, request: ApiRequest) -> schemas.TestSent:
    """Send a test message. Limits: one per 5 seconds, and 60 per hour for all channels of the organization together."""
    test = await request.components.channels.test(request.org_id, channel_id, request.actor)
    return schemas.TestSent(channel_id, test.message_id)


@routes.post("/channels/{channel_id}/resume", Permission.ACT, conflict=True)
async def resume_channel(channel_id: UUID, request: ApiRequest) -> schemas.Channel:
    """Resume a disabled channel. Waiting messages are sent too, unless they are older than a day."""
    service = request.components.channels
    await service.resume(request.org_id, channel_id, request.actor)
    return _channel_shown(await service.reader.view(request.org_id, channel_id))


@routes.delete("/channels/{channel_id}", Permission.ACT, conflict=True)
async def delete_channel(channel_id: UUID, request: ApiRequest) -> None:
    """Delete a channel; its waiting messages are dropped."""
    await request.components.channels.delete(request.org_id, channel_id, request.actor)


# -- from requests -------------------------------------------------------------------------------------------


def _changes(body: schemas.AlertRuleIn) -> dict[str, Any]:
    given = {name: getattr(body, name) for name in _CHANGEABLE if getattr(body, name) is not None}
    if not given:
        raise InvalidInput("body", "must change something; name at least one of " + ", ".join(_CHANGEABLE))
    return given


# -- shapes ------------------------------------------------------------------------------------------------------


async def _alert_shown(alert: model.Alert, request: ApiRequest) -> schemas.Alert:
    by = alert.acknowledged_by and (await request.who(alert.acknowledged_by))["actor"]
    return shape(
        schemas.Alert,
        alert,
        state="open" if alert.is_open else "recovered",
        title=title_of(alert),
        error_code=alert.code,
        error_reason=alert.reason,
        last_seen_at=time(alert.seen_at),
        acknowledged_by=by or None,
        link=link_to(alert, console_of(request.doorstep.settings)),
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
