"""When an alert begins, is told, and is over. Thresholds are exact: it fires at more than one, and not one before.

An alert has two sides: what is the case (open, ended) and what those who listen believe (`told`). A message goes out
where they differ and nothing keeps it back: a silence, or the cooldown of a thing that comes and goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant, seconds
from doorstep.model.alert import Alert, AlertRule, Rule, Silence, subject_of
from doorstep.model.noun import Noun

OVER_AT = 0.8
"""What has fired is over only at this share of its threshold, so that a value at the threshold does not flap."""

_NOBODY = UUID(int=0)
BUILT_IN: dict[Rule, AlertRule] = {
    rule.rule: rule
    for rule in (
        AlertRule(org_id=_NOBODY, rule=Rule.DEAD_LETTER),
        AlertRule(org_id=_NOBODY, rule=Rule.FAILURE_RATE, threshold=5.0, window_seconds=900.0, minimum=20),
        AlertRule(org_id=_NOBODY, rule=Rule.DEAD_LETTERS, threshold=50.0),
        AlertRule(org_id=_NOBODY, rule=Rule.CIRCUIT_OPENED),
        AlertRule(org_id=_NOBODY, rule=Rule.ENDPOINT_DISABLED),
        AlertRule(org_id=_NOBODY, rule=Rule.OLDEST_DUE, threshold=300.0),
    )
}
"""What holds until an organization says otherwise."""

OCCURRENCES = frozenset({Rule.DEAD_LETTER})
"""What happens and is not afterwards: nothing recovers. An alert of it counts more of the same until its cooldown ends."""


class News(StrEnum):
    """What a message says of its alert."""

    FIRED = "fired"
    RECOVERED = "recovered"


class Sight(Noun, frozen=True, kw_only=True):
    """What was seen of one subject at one moment."""

    rule: Rule
    on: bool
    endpoint_id: UUID | None = None
    endpoint_name: str = ""
    cause: int | None = None
    value: float | None = None
    code: str = ""
    reason: str = ""
    delivery_id: UUID | None = None
    event_id: UUID | None = None
    event_type: str = ""

    @property
    def subject(self) -> str:
        return subject_of(self.rule, self.endpoint_id, self.cause)


class Step(Noun, frozen=True):
    """What is to be written of one alert, and told."""

    alert: Alert
    news: News | None = None


# -- rules -------------------------------------------------------------------------------------------------


class Rules:
    """The rules of one organization: an endpoint's own before the organization's, that before the built-in one."""

    def __init__(self, org_id: UUID, rules: Iterable[AlertRule] = (), silences: Iterable[Silence] = ()) -> None:
        self._org_id = org_id
        self._rules = {(one.rule, one.endpoint_id): one for one in rules}
        self._silences = tuple(silences)

    def of(self, rule: Rule, endpoint_id: UUID | None = None) -> AlertRule:
        own = self._rules.get((rule, endpoint_id)) or self._rules.get((rule, None))
        return own or replace(BUILT_IN[rule], org_id=self._org_id)

    def own_of(self, rule: Rule) -> set[UUID]:
        """The endpoints that have a rule of their own."""
        return {endpoint_id for kind, endpoint_id in self._rules if kind is rule and endpoint_id is not None}

    def silenced(self, rule: Rule, endpoint_id: UUID | None, now: Instant) -> bool:
        return any(one.covers(rule, endpoint_id, now) for one in self._silences)


# -- measures ----------------------------------------------------------------------------------------------


def is_above(value: float, threshold: float, was_on: bool) -> bool:
    """More than the threshold; once it was, more than four fifths of it."""
    return value > (threshold * OVER_AT if was_on else threshold)


def failing(succeeded: int, failed: int, rule: AlertRule, was_on: bool) -> tuple[bool, float]:
    """Whether too many deliveries failed for good, and how many percent that were.

    With too few of them to tell, it stays as it was; but where none failed, it is over.
    """
    settled = succeeded + failed
    percent = 100 * failed / settled if settled else 0.0
    if settled < rule.minimum:
        return was_on and failed > 0, percent
    return is_above(percent, rule.threshold, was_on), percent


# -- what becomes of an alert ------------------------------------------------------------------------------


def after(known: Alert | None, sight: Sight, rules: Rules, now: Instant, new_id: UUID) -> Step | None:
    """What is to be written after a sight; None where nothing is. `known` is the newest alert of its subject."""
    rule = rules.of(sight.rule, sight.endpoint_id)
    if sight.on and rule.enabled:
        return _told_if_due(_open(known, sight, rule, now, new_id), known, rules, now)
    return ended(known, rules, now) if known is not None and known.is_open else None


def ended(alert: Alert, rules: Rules, now: Instant) -> Step:
    """It is over. Whoever was told of it is told so, unless it is a thing that just happened, or in a silence."""
    over = replace(alert, ended_at=now, told=False)
    quiet = alert.rule in OCCURRENCES or rules.silenced(alert.rule, alert.endpoint_id, now)
    return Step(over, None if quiet or not alert.told else News.RECOVERED)


def reviewed(alert: Alert, rules: Rules, now: Instant) -> Step | None:
    """What time alone does to an open alert: an occurrence is over, or what was kept back is told."""
    rule = rules.of(alert.rule, alert.endpoint_id)
    if not rule.enabled or (alert.rule in OCCURRENCES and _cooled(alert.opened_at, rule, now)):
        return ended(alert, rules, now)
    if alert.rule in OCCURRENCES:
        return None
    return _told_if_due(alert, alert, rules, now)


def _open(known: Alert | None, sight: Sight, rule: AlertRule, now: Instant, new_id: UUID) -> Alert:
    if known is None:
        return _new(sight, rule, now, new_id)
    if sight.rule in OCCURRENCES:
        again = known.is_open and not _cooled(known.opened_at, rule, now)
        return _counted(known, sight, now) if again else _new(sight, rule, now, new_id)
    if known.is_open:
        return known
    if known.told_at is not None and not _cooled(known.told_at, rule, now):
        return replace(_counted(known, sight, now), ended_at=None, threshold=rule.threshold or None)
    return _new(sight, rule, now, new_id)


def _new(sight: Sight, rule: AlertRule, now: Instant, new_id: UUID) -> Alert:
    return Alert(
        alert_id=new_id,
        org_id=rule.org_id,
        rule=sight.rule,
        opened_at=now,
        seen_at=now,
        endpoint_id=sight.endpoint_id,
        endpoint_name=sight.endpoint_name,
        cause=sight.cause,
        value=sight.value,
        threshold=rule.threshold or None,
        code=sight.code,
        reason=sight.reason,
        delivery_id=sight.delivery_id,
        event_id=sight.event_id,
        event_type=sight.event_type,
    )


def _counted(alert: Alert, sight: Sight, now: Instant) -> Alert:
    """The words stay those of the first one, which is what was told."""
    return replace(alert, count=alert.count + 1, seen_at=now, value=sight.value)


def _told_if_due(alert: Alert, before: Alert | None, rules: Rules, now: Instant) -> Step | None:
    kept_back = alert.told or rules.silenced(alert.rule, alert.endpoint_id, now) or _is_cooling(alert, rules, now)
    if not kept_back:
        return Step(replace(alert, told=True, told_at=now), News.FIRED)
    return None if alert == before else Step(alert)


def _is_cooling(alert: Alert, rules: Rules, now: Instant) -> bool:
    return alert.told_at is not None and not _cooled(alert.told_at, rules.of(alert.rule, alert.endpoint_id), now)


def _cooled(since: Instant, rule: AlertRule, now: Instant) -> bool:
    return now >= since + seconds(rule.cooldown_seconds)
