"""The shapes of alerts, their rules, and silences."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from doorstep.api.limits import CooldownSeconds, DeliveriesMin, Threshold, WindowSeconds
from doorstep.api.schemas import Asked, CountedPagination, Id, Moment, Pagination, Reason, Shape, Timestamp, iso
from doorstep.clock import to_iso
from doorstep.errors import InvalidInput
from doorstep.model.alert import Alert, AlertFilter, AlertRule, Rule, RuleName, Silence
from doorstep.policy.alert_words import link_to, title_of

AlertState = Literal["open", "recovered"]
EndedBecause = Literal["recovered", "elapsed", "endpoint_deleted", "endpoint_paused", "rule_changed"]


class AlertsAsked(Asked):
    state: AlertState | None = None
    rule: RuleName | None = None
    endpoint_id: Id | None = None

    def wanted(self) -> AlertFilter:
        return AlertFilter(
            is_open=None if self.state is None else self.state == "open",
            rule=None if self.rule is None else Rule(self.rule),
            endpoint_id=self.endpoint_id,
        )


class AlertOut(Shape):
    """Something that is, or was, the matter."""

    alert_id: UUID
    rule: RuleName
    state: AlertState
    title: str
    endpoint_id: UUID | None
    endpoint_name: str
    error_code: str
    error_reason: str
    value: float | None
    """What was measured when it was last seen."""
    threshold: float | None
    count: int
    """How often it happened, or came back, while it was open."""
    delivery_id: UUID | None
    event_id: UUID | None
    event_type: str
    opened_at: Timestamp
    last_seen_at: Timestamp
    """When it was last seen to be so; of what is measured and goes on, to within a minute."""
    ended_at: Timestamp | None
    ended_because: EndedBecause | None
    """`recovered`: it works again; `elapsed`: it just happened, and its cooldown is over; `rule_changed`: its rule was
    turned off or reset."""
    told_at: Timestamp | None
    """When channels were last told that it is on; null while a silence or the cooldown keeps it back."""
    acknowledged_at: Timestamp | None
    acknowledged_by: str | None
    link: str
    """The page of the console where one can do something about it."""

    @classmethod
    def of(cls, alert: Alert, console: str) -> AlertOut:
        return cls(**_alert_fields(alert), title=title_of(alert), link=link_to(alert, console))


class AlertsOut(Shape):
    alerts: list[AlertOut]
    pagination: Pagination


class AlertRuleIn(Shape):
    """What is to change; what is left out stays. Without an endpoint it is for all that have no rule of their own.

    `threshold` is for `failure_rate` (0 to 100 percent), `dead_letters` (how many) and `oldest_due` (10 to 2,592,000
    seconds); `window_seconds` and `minimum` are for `failure_rate`.
    """

    rule: RuleName
    endpoint_id: Id | None = None
    enabled: bool | None = None
    threshold: Threshold | None = None
    """It fires at more than this: percent, dead letters, or seconds."""
    window_seconds: WindowSeconds | None = None
    """`failure_rate`: how far it looks back."""
    minimum: DeliveriesMin | None = None
    """`failure_rate`: with fewer deliveries than this in that time nothing is said."""
    cooldown_seconds: CooldownSeconds | None = None
    """For so long after it was told, the same is not told again."""

    def changes(self) -> dict[str, Any]:
        names = ("enabled", "threshold", "window_seconds", "minimum", "cooldown_seconds")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if not given:
            raise InvalidInput("body", "must change something; name at least one of " + ", ".join(names))
        return given


class AlertRuleOut(Shape):
    """`alert_rule_id` is null for a rule that is built in, and was not changed."""

    alert_rule_id: UUID | None
    rule: RuleName
    endpoint_id: UUID | None
    enabled: bool
    threshold: float | None
    window_seconds: float | None
    minimum: int | None
    cooldown_seconds: float

    @classmethod
    def of(cls, rule: AlertRule) -> AlertRuleOut:
        measures = rule.rule in (Rule.FAILURE_RATE, Rule.DEAD_LETTERS, Rule.OLDEST_DUE)
        rate = rule.rule is Rule.FAILURE_RATE
        return cls(
            alert_rule_id=rule.arrangement_id if rule.version else None,
            rule=rule.rule.value,
            endpoint_id=rule.endpoint_id,
            enabled=rule.enabled,
            threshold=float(rule.threshold) if measures else None,
            window_seconds=float(rule.window_seconds) if rate else None,
            minimum=rule.minimum if rate else None,
            cooldown_seconds=float(rule.cooldown_seconds),
        )


class AlertRulesOut(Shape):
    alert_rules: list[AlertRuleOut]
    pagination: CountedPagination


class SilenceIn(Shape):
    """A time in which alerts are listed and told to nobody. It ends later than now and than `from_at`, and within 366
    days."""

    until_at: Moment
    from_at: Moment | None = None
    """From now on, if it is left out."""
    endpoint_id: Id | None = None
    rule: RuleName | None = None
    reason: Reason = ""


class SilenceOut(Shape):
    silence_id: UUID
    from_at: Timestamp
    until_at: Timestamp
    endpoint_id: UUID | None
    rule: RuleName | None
    reason: str
    actor: str

    @classmethod
    def of(cls, silence: Silence) -> SilenceOut:
        return cls(
            silence_id=silence.silence_id,
            from_at=to_iso(silence.from_at),
            until_at=to_iso(silence.until_at),
            endpoint_id=silence.endpoint_id,
            rule=None if silence.rule is None else silence.rule.value,
            reason=silence.reason,
            actor=silence.actor,
        )


class SilencesOut(Shape):
    silences: list[SilenceOut]
    pagination: CountedPagination


def _alert_fields(alert: Alert) -> dict[str, Any]:
    return {
        "alert_id": alert.alert_id,
        "rule": alert.rule.value,
        "state": "open" if alert.is_open else "recovered",
        "endpoint_id": alert.endpoint_id,
        "endpoint_name": alert.endpoint_name,
        "error_code": alert.code,
        "error_reason": alert.reason,
        "value": None if alert.value is None else float(alert.value),
        "threshold": None if alert.threshold is None else float(alert.threshold),
        "count": alert.count,
        "delivery_id": alert.delivery_id,
        "event_id": alert.event_id,
        "event_type": alert.event_type,
        "opened_at": to_iso(alert.opened_at),
        "last_seen_at": to_iso(alert.seen_at),
        "ended_at": iso(alert.ended_at),
        "ended_because": None if alert.ended_because is None else alert.ended_because.value,
        "told_at": iso(alert.told_at),
        "acknowledged_at": iso(alert.acknowledged_at),
        "acknowledged_by": alert.acknowledged_by or None,
    }
