"""Alerts for operators: list and acknowledge alerts, change rules, create silences. Every change is audited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.engine.directory import RACES_MAX
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import AuditEntry, audit_entry
from doorstep.model.alert import (
    Alert,
    AlertChange,
    AlertConfig,
    AlertConfigs,
    AlertFilter,
    AlertRule,
    AlertWrite,
    Rule,
    Silence,
    rule_id,
)
from doorstep.model.listing import Page
from doorstep.model.record import uuid7
from doorstep.operations.alert_evaluator import OLDEST_DUE_SECONDS_MIN, WINDOW_SECONDS_MAX
from doorstep.operations.channels import CONFIG_MAX
from doorstep.operations.endpoint_rules import check_bounds
from doorstep.operations.endpoints import check_endpoints_exist
from doorstep.operations.pages import full_page
from doorstep.policy.alerts import BUILT_IN
from doorstep.stores.limits import check_storable
from doorstep.stores.store import Delete, Put, Store

_SILENCE_SECONDS_MAX = 366 * 86_400.0
_THRESHOLDS: dict[Rule, tuple[float, float]] = {
    Rule.FAILURE_RATE: (0.0, 100.0),
    Rule.DEAD_LETTERS: (0.0, 1e9),
    Rule.OLDEST_DUE: (OLDEST_DUE_SECONDS_MIN, 30 * 86_400.0),
}
_COOLDOWN_SECONDS = (60.0, 30 * 86_400.0)
"""The bounds of a cooldown. Without a cooldown, each dead letter would cause its own message."""
_WINDOW_SECONDS = (60.0, WINDOW_SECONDS_MAX)
_ONLY_RATE = ("window_seconds", "minimum")


class AlertService:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    # -- alerts --------------------------------------------------------------------------------------------

    async def alerts(self, org_id: UUID, filters: AlertFilter, cursor: str | None, limit: int) -> Page[Alert]:
        """One page of alerts, newest first."""
        return await full_page(self._store, self._clock, org_id, filters, cursor, limit)

    async def alert(self, org_id: UUID, alert_id: UUID) -> Alert:
        return await self._store.get(Alert, org_id, alert_id)

    async def config(self, org_id: UUID) -> Sequence[AlertConfig]:
        """The rules, channels and silences of an organization, in one read."""
        return await self._store.find(org_id, AlertConfigs())

    async def acknowledge(self, org_id: UUID, alert_id: UUID, actor: str, reason: str = "") -> Alert:
        """Record who is working on the alert. The first acknowledgement is kept; a later one changes nothing."""
        check_storable("reason", reason)
        for _ in range(RACES_MAX):
            alert = await self._store.get(Alert, org_id, alert_id)
            if alert.acknowledged_at is not None:
                return alert
            acknowledged = replace(alert, acknowledged_at=self._clock.now(), acknowledged_by=actor)
            entry = self._audit_entry(org_id, actor, "alert.acknowledge", alert_id, alert.rule, reason)
            change = AlertChange(acknowledged, alert.version)
            if await self._store.write_alerts(AlertWrite(org_id=org_id, changes=(change,), entry=entry)):
                return replace(acknowledged, version=alert.version + 1)
        raise Conflict(f"alert {alert_id} keeps changing; try again")

    # -- rules ---------------------------------------------------------------------------------------------

    async def rules(self, org_id: UUID) -> list[AlertRule]:
        """All rules in effect: first the rules of the whole organization (version 0 if built in), then the rules of
        individual endpoints."""
        own = [one for one in await self.config(org_id) if isinstance(one, AlertRule)]
        general = {one.rule: one for one in own if one.endpoint_id is None}
        built_in = (replace(rule, org_id=org_id) for rule in BUILT_IN.values())
        return [*(general.get(one.rule, one) for one in built_in), *(one for one in own if one.endpoint_id is not None)]

    async def set_rule(
        self, org_id: UUID, rule: Rule, endpoint_id: UUID | None, changes: Mapping[str, Any], actor: str
    ) -> AlertRule:
        """Change some fields of a rule; the others keep their current or built-in values."""
        await self._check_endpoint(org_id, endpoint_id)
        for _ in range(RACES_MAX):
            known = await self._rule(org_id, rule, endpoint_id)
            changed = replace(known, endpoint_id=endpoint_id, **changes)
            _check(changed, changes)
            summary = ", ".join(f"{name}={value:g}" for name, value in sorted(changes.items()))
            entry = self._audit_entry(org_id, actor, "alert_rule.set", changed.config_id, rule, summary)
            put = Put(document=changed, expected_version=known.version, limit=CONFIG_MAX)
            if await self._store.write([put], entry):
                return replace(changed, version=known.version + 1)
        raise Conflict(f"the rule {rule} keeps changing; try again")

    async def reset_rule(self, org_id: UUID, config_id: UUID, actor: str) -> None:
        """Delete the rule, so that the more general one applies again."""
        for one in await self.config(org_id):
            if isinstance(one, AlertRule) and one.config_id == config_id:
                entry = self._audit_entry(org_id, actor, "alert_rule.reset", config_id, "reset")
                await self._store.write([Delete(document=one)], entry)
                return
        raise NotFound(f"no alert rule {config_id}")

    async def _rule(self, org_id: UUID, rule: Rule, endpoint_id: UUID | None) -> AlertRule:
        """The rule to change: the existing one, or a new one that starts as a copy of the more general rule."""
        known = {one.config_id: one for one in await self.config(org_id) if isinstance(one, AlertRule)}
        own = known.get(rule_id(org_id, rule, endpoint_id))
        general = known.get(rule_id(org_id, rule, None)) or replace(BUILT_IN[rule], org_id=org_id)
        return own or replace(general, version=0)

    async def _check_endpoint(self, org_id: UUID, endpoint_id: UUID | None) -> None:
        if endpoint_id is not None:
            await check_endpoints_exist(self._store, org_id, [endpoint_id], "endpoint_id")

    # -- silences ------------------------------------------------------------------------------------------

    async def silences(self, org_id: UUID) -> list[Silence]:
        return [one for one in await self.config(org_id) if isinstance(one, Silence)]

    async def silence(
        self,
        org_id: UUID,
        actor: str,
        *,
        until_at: Instant,
        from_at: Instant | None = None,
        endpoint_id: UUID | None = None,
        rule: Rule | None = None,
        reason: str = "",
    ) -> Silence:
        now = self._clock.now()
        begin = now if from_at is None else from_at
        if not max(begin, now) < until_at <= now + seconds(_SILENCE_SECONDS_MAX):
            raise InvalidInput(
                "until_at", f"must be later than now and than from_at, and within 366 days, got {to_iso(until_at)}"
            )
        await self._check_endpoint(org_id, endpoint_id)
        check_storable("reason", reason)
        silence = Silence(
            silence_id=uuid7(now),
            org_id=org_id,
            from_at=begin,
            until_at=until_at,
            endpoint_id=endpoint_id,
            rule=rule,
            reason=reason,
            actor=actor,
            version=1,
        )
        entry = self._audit_entry(org_id, actor, "silence.create", silence.silence_id, rule or "all", reason)
        await self._store.write([Put(document=silence, expected_version=0, limit=CONFIG_MAX)], entry)
        return silence

    async def end_silence(self, org_id: UUID, silence_id: UUID, actor: str) -> None:
        for silence in await self.silences(org_id):
            if silence.silence_id == silence_id:
                entry = self._audit_entry(org_id, actor, "silence.end", silence_id, "ended")
                await self._store.write([Delete(document=silence)], entry)
                return
        raise NotFound(f"no silence {silence_id}")

    def _audit_entry(
        self, org_id: UUID, actor: str, action: str, subject: UUID, result: str, reason: str = ""
    ) -> AuditEntry:
        return audit_entry(self._clock.now(), org_id, actor, action, subject, result=str(result), reason=reason)


def _check(rule: AlertRule, changes: Mapping[str, Any]) -> None:
    """Raise InvalidInput for the first invalid field."""
    if rule.rule in _THRESHOLDS:
        check_bounds("threshold", rule.threshold, _THRESHOLDS[rule.rule])
    elif "threshold" in changes:
        raise InvalidInput("threshold", f"is only for {', '.join(_THRESHOLDS)}; {rule.rule} has none")
    given = [name for name in _ONLY_RATE if name in changes]
    if given and rule.rule is not Rule.FAILURE_RATE:
        raise InvalidInput(given[0], f"is only for {Rule.FAILURE_RATE}")
    if rule.rule is Rule.FAILURE_RATE:
        check_bounds("window_seconds", rule.window_seconds, _WINDOW_SECONDS)
        check_bounds("minimum", rule.minimum, (1, 1_000_000))
    check_bounds("cooldown_seconds", rule.cooldown_seconds, _COOLDOWN_SECONDS)
