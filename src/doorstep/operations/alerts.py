"""Beside the path: alerts are looked at and acknowledged, rules changed, silences made. Every change is audited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.engine.directory import RACES_MAX
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import Alert, AlertChange, AlertFilter, AlertRule, AlertWrite, Rule, Silence, rule_id
from doorstep.model.listing import Page
from doorstep.model.record import uuid7
from doorstep.operations.alert_evaluator import OLDEST_DUE_SECONDS_MIN, WINDOW_SECONDS_MAX
from doorstep.operations.channels import ARRANGEMENTS_MAX
from doorstep.operations.endpoints import check_living
from doorstep.policy.alerts import BUILT_IN
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable

_SILENCE_SECONDS_MAX = 366 * 86_400.0
_THRESHOLDS: dict[Rule, tuple[float, float]] = {
    Rule.FAILURE_RATE: (0.0, 100.0),
    Rule.DEAD_LETTERS: (0.0, 1e9),
    Rule.OLDEST_DUE: (OLDEST_DUE_SECONDS_MIN, 30 * 86_400.0),
}
_COOLDOWN_SECONDS = (60.0, 30 * 86_400.0)
"""Without one, each dead letter would be a message of its own."""
_WINDOW_SECONDS = (60.0, WINDOW_SECONDS_MAX)
_ONLY_RATE = ("window_seconds", "minimum")


class AlertService:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    # -- alerts --------------------------------------------------------------------------------------------

    async def alerts(self, org_id: UUID, wanted: AlertFilter, cursor: str | None, limit: int) -> Page[Alert]:
        """The newest first."""
        return await self._store.list_alerts(org_id, wanted, cursor, limit)

    async def alert(self, org_id: UUID, alert_id: UUID) -> Alert:
        return await self._store.alert(org_id, alert_id)

    async def acknowledge(self, org_id: UUID, alert_id: UUID, actor: str, reason: str = "") -> Alert:
        """Somebody has seen it and sees to it; the first who says so stays. Nothing else changes."""
        check_storable("reason", reason)
        for _ in range(RACES_MAX):
            alert = await self._store.alert(org_id, alert_id)
            if alert.acknowledged_at is not None:
                return alert
            now = self._clock.now()
            seen = replace(alert, acknowledged_at=now, acknowledged_by=actor)
            line = self._line(org_id, actor, "alert.acknowledge", alert_id, alert.rule, reason)
            change = AlertChange(seen, alert.version)
            if await self._store.tell(AlertWrite(org_id=org_id, changes=(change,), line=line)):
                return replace(seen, version=alert.version + 1)
        raise Conflict(f"alert {alert_id} is being changed by others all the time; try again")

    # -- rules ---------------------------------------------------------------------------------------------

    async def rules(self, org_id: UUID) -> list[AlertRule]:
        """Those that hold for the whole organization, built in where nobody changed them (version 0), then those of
        single endpoints."""
        own = [one for one in await self._store.arrangements(org_id) if isinstance(one, AlertRule)]
        general = {one.rule: one for one in own if one.endpoint_id is None}
        built_in = (replace(rule, org_id=org_id) for rule in BUILT_IN.values())
        return [*(general.get(one.rule, one) for one in built_in), *(one for one in own if one.endpoint_id is not None)]

    async def set_rule(
        self, org_id: UUID, rule: Rule, endpoint_id: UUID | None, changes: Mapping[str, Any], actor: str
    ) -> AlertRule:
        """Change some of its terms; the rest stays as it is, or as it is built in."""
        await self._check_endpoint(org_id, endpoint_id)
        for _ in range(RACES_MAX):
            known = await self._rule(org_id, rule, endpoint_id)
            wanted = replace(known, endpoint_id=endpoint_id, **changes)
            _check(wanted, changes)
            named = ", ".join(f"{name}={value:g}" for name, value in sorted(changes.items()))
            line = self._line(org_id, actor, "alert_rule.set", wanted.arrangement_id, rule, named)
            if await self._store.put_arrangement(wanted, known.version, line, ARRANGEMENTS_MAX):
                return replace(wanted, version=known.version + 1)
        raise Conflict(f"the rule {rule} is being changed by others all the time; try again")

    async def reset_rule(self, org_id: UUID, arrangement_id: UUID, actor: str) -> None:
        """From now on what is more general holds again."""
        line = self._line(org_id, actor, "alert_rule.reset", arrangement_id, "reset")
        known = await self._store.arrangements(org_id)
        if not any(isinstance(one, AlertRule) and one.arrangement_id == arrangement_id for one in known):
            raise NotFound(f"no alert rule {arrangement_id}")
        await self._store.remove_arrangement(org_id, arrangement_id, line)

    async def _rule(self, org_id: UUID, rule: Rule, endpoint_id: UUID | None) -> AlertRule:
        """The one that would be changed: its own, or a new one that begins as what held so far."""
        known = {
            one.arrangement_id: one for one in await self._store.arrangements(org_id) if isinstance(one, AlertRule)
        }
        own = known.get(rule_id(org_id, rule, endpoint_id))
        general = known.get(rule_id(org_id, rule, None)) or replace(BUILT_IN[rule], org_id=org_id)
        return own or replace(general, version=0)

    async def _check_endpoint(self, org_id: UUID, endpoint_id: UUID | None) -> None:
        if endpoint_id is not None:
            await check_living(self._store, org_id, [endpoint_id], "endpoint_id")

    # -- silences ------------------------------------------------------------------------------------------

    async def silences(self, org_id: UUID) -> list[Silence]:
        return [one for one in await self._store.arrangements(org_id) if isinstance(one, Silence)]

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
        line = self._line(org_id, actor, "silence.create", silence.silence_id, rule or "all", reason)
        await self._store.put_arrangement(silence, 0, line, ARRANGEMENTS_MAX)
        return silence

    async def end_silence(self, org_id: UUID, silence_id: UUID, actor: str) -> None:
        if all(one.silence_id != silence_id for one in await self.silences(org_id)):
            raise NotFound(f"no silence {silence_id}")
        line = self._line(org_id, actor, "silence.end", silence_id, "ended")
        await self._store.remove_arrangement(org_id, silence_id, line)

    def _line(self, org_id: UUID, actor: str, action: str, subject: UUID, result: str, reason: str = "") -> AuditEntry:
        return AuditEntry(
            at=self._clock.now(),
            org_id=org_id,
            actor=actor,
            action=action,
            subjects=(str(subject),),
            result=str(result),
            reason=reason,
        )


def _check(rule: AlertRule, changes: Mapping[str, Any]) -> None:
    """Refuse what cannot work, naming the field."""
    if rule.rule in _THRESHOLDS:
        _bounded("threshold", rule.threshold, *_THRESHOLDS[rule.rule])
    elif "threshold" in changes:
        raise InvalidInput("threshold", f"is for {', '.join(_THRESHOLDS)}; {rule.rule} has none")
    given = [name for name in _ONLY_RATE if name in changes]
    if given and rule.rule is not Rule.FAILURE_RATE:
        raise InvalidInput(given[0], f"is for {Rule.FAILURE_RATE} alone")
    if rule.rule is Rule.FAILURE_RATE:
        _bounded("window_seconds", rule.window_seconds, *_WINDOW_SECONDS)
        _bounded("minimum", rule.minimum, 1, 1_000_000)
    _bounded("cooldown_seconds", rule.cooldown_seconds, *_COOLDOWN_SECONDS)


def _bounded(field: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidInput(field, f"must be from {low:.15g} to {high:.15g}, got {value:.15g}")
