"""Alerts: the list of what is or was the matter, the rules for it, and times of silence."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from doorstep.api.alert_schemas import (
    AlertOut,
    AlertRuleIn,
    AlertRuleOut,
    AlertRulesOut,
    AlertsAsked,
    AlertsOut,
    SilenceIn,
    SilenceOut,
    SilencesOut,
)
from doorstep.api.auth import Caller
from doorstep.api.event_schemas import ReasonIn
from doorstep.api.routing import group
from doorstep.api.schemas import CountedPagination, Pagination
from doorstep.app import Doorstep
from doorstep.components import console_of
from doorstep.model.alert import Rule

_NO_REASON = ReasonIn()


def alert_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/alerts", "alerts")
    console = console_of(doorstep.settings)

    @router.get("")
    async def list_alerts(asked: Annotated[AlertsAsked, Query()], caller: Caller) -> AlertsOut:
        """Alerts, newest first: those that are open, and those that are over."""
        page = await doorstep.components.alerts.alerts(caller.org_id, asked.wanted(), asked.cursor, asked.limit)
        alerts = [AlertOut.of(one, console) for one in page.items]
        return AlertsOut(alerts=alerts, pagination=Pagination.of(page, asked.limit))

    @router.get("/{alert_id}")
    async def read_alert(alert_id: UUID, caller: Caller) -> AlertOut:
        """One alert as it stands."""
        return AlertOut.of(await doorstep.components.alerts.alert(caller.org_id, alert_id), console)

    @router.post("/{alert_id}/acknowledge")
    async def acknowledge_alert(alert_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> AlertOut:
        """Say that you have seen it and see to it. The first who does so stays; nothing else changes."""
        desk = doorstep.components.alerts
        return AlertOut.of(await desk.acknowledge(caller.org_id, alert_id, caller.prefix, body.reason), console)

    return router


def alert_rule_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/alert-rules", "alerts")

    @router.get("")
    async def list_alert_rules(caller: Caller) -> AlertRulesOut:
        """The rules that hold: the built-in ones, unless you changed them, and those of single endpoints."""
        rules = [AlertRuleOut.of(one) for one in await doorstep.components.alerts.rules(caller.org_id)]
        return AlertRulesOut(alert_rules=rules, pagination=CountedPagination.whole(rules))

    @router.post("")
    async def set_alert_rule(body: AlertRuleIn, caller: Caller) -> AlertRuleOut:
        """Change a rule for your organization, or for one endpoint."""
        desk = doorstep.components.alerts
        changed = await desk.set_rule(caller.org_id, Rule(body.rule), body.endpoint_id, body.changes(), caller.prefix)
        return AlertRuleOut.of(changed)

    @router.delete("/{alert_rule_id}", status_code=204)
    async def reset_alert_rule(alert_rule_id: UUID, caller: Caller) -> None:
        """Undo what was changed: the organization's rule, or the built-in one, holds again."""
        await doorstep.components.alerts.reset_rule(caller.org_id, alert_rule_id, caller.prefix)

    return router


def silence_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/silences", "alerts")

    @router.post("", status_code=201)
    async def create_silence(body: SilenceIn, caller: Caller) -> SilenceOut:
        """Tell nobody of alerts for a while. What is still on when it ends is told then."""
        silence = await doorstep.components.alerts.silence(
            caller.org_id,
            caller.prefix,
            until_at=body.until_at,
            from_at=body.from_at,
            endpoint_id=body.endpoint_id,
            rule=None if body.rule is None else Rule(body.rule),
            reason=body.reason,
        )
        return SilenceOut.of(silence)

    @router.get("")
    async def list_silences(caller: Caller) -> SilencesOut:
        """Silences in the order of their creation, those that have ended lately too."""
        silences = [SilenceOut.of(one) for one in await doorstep.components.alerts.silences(caller.org_id)]
        return SilencesOut(silences=silences, pagination=CountedPagination.whole(silences))

    @router.delete("/{silence_id}", status_code=204)
    async def end_silence(silence_id: UUID, caller: Caller) -> None:
        """End a silence now."""
        await doorstep.components.alerts.end_silence(caller.org_id, silence_id, caller.prefix)

    return router
