"""Decides when an alert opens, when it is announced, and when it ends. Thresholds are exact: an alert fires above its
threshold, not at it.

An alert is open or ended. Its field `told` is true if the channels know it as open.
If `told` does not match the state of the alert, a message is sent, unless a silence is active or the alert was
announced within its cooldown.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND, Instant, seconds
from doorstep.errors import Overloaded
from doorstep.model.alert import (
    MEASURED,
    OCCURRENCES,
    Alert,
    AlertRule,
    ChannelTest,
    Ending,
    Problem,
    Rule,
    Silence,
    subject_of,
)
from doorstep.model.record import Record

OVER_AT = 0.8
"""An alert ends only when its value falls to this share of the threshold, so that a value near the threshold does not
open and end it repeatedly."""

_OF_THE_WHOLE = frozenset({Rule.DEAD_LETTERS, Rule.OLDEST_DUE})
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
"""The rules that apply to an organization until it changes them."""

SEEN_EVERY: Instant = 60 * SECOND
"""How often the current value of an open alert is written: one small write per alert per minute."""


class News(StrEnum):
    """What a message announces."""

    FIRED = "fired"
    RECOVERED = "recovered"
    """The alert ended; `ended_because` says why."""


class Observation(Problem, frozen=True, kw_only=True):
    """The state of one subject at one moment."""

    rule: Rule
    on: bool
    endpoint_name: str = ""
    value: float | None = None

    @property
    def subject(self) -> str:
        return subject_of(self.rule, self.endpoint_id, self.cause)


class Step(Record, frozen=True):
    """An alert to write, and the announcement to make, if any."""

    alert: Alert
    news: News | None = None


# -- rules -------------------------------------------------------------------------------------------------


class Rules:
    """The rules of one organization. An endpoint's own rule takes precedence over the organization's rule, which takes
    precedence over the built-in rule."""

    def __init__(self, org_id: UUID, rules: Iterable[AlertRule] = (), silences: Iterable[Silence] = ()) -> None:
        self._org_id = org_id
        self._rules = {(one.rule, one.endpoint_id): one for one in rules}
        self._silences = tuple(silences)

    def of(self, rule: Rule, endpoint_id: UUID | None = None) -> AlertRule:
        own = self._rules.get((rule, endpoint_id)) or self._rules.get((rule, None))
        return own or replace(BUILT_IN[rule], org_id=self._org_id)

    def own_of(self, rule: Rule) -> set[UUID]:
        """The endpoints that have their own rule of this kind."""
        return {endpoint_id for kind, endpoint_id in self._rules if kind is rule and endpoint_id is not None}

    def holds_for(self, rule: Rule, endpoint_id: UUID | None) -> bool:
        """Whether this rule can open an alert about this endpoint, or about the whole organization if `endpoint_id` is
        None.

        Some rules apply to a single endpoint only if the endpoint has its own rule.
        """
        has_own = endpoint_id is None or rule not in _OF_THE_WHOLE or (rule, endpoint_id) in self._rules
        return has_own and self.of(rule, endpoint_id).enabled

    def silent_until(self, rule: Rule, endpoint_id: UUID | None, now: Instant) -> Instant:
        """When the current silence ends, or 0 if there is none."""
        return max((one.until_at for one in self._silences if one.covers(rule, endpoint_id, now)), default=0)

    @property
    def memory_seconds(self) -> float:
        """How long an alert still matters after its end. Later it cannot reopen, and it is outside the window of the
        failure rate."""
        cooldowns = (one.cooldown_seconds for one in (*BUILT_IN.values(), *self._rules.values()))
        return max(*cooldowns, self.of(Rule.FAILURE_RATE).window_seconds)


# -- measures ----------------------------------------------------------------------------------------------


def is_above(value: float, threshold: float, was_on: bool) -> bool:
    """Whether the value is above the threshold or, if the alert is already open, above the threshold times
    `OVER_AT`."""
    return value > (threshold * OVER_AT if was_on else threshold)


def failing(succeeded: int, failed: int, rule: AlertRule, was_on: bool) -> tuple[bool, float]:
    """Whether too many deliveries failed permanently, and their percentage.

    If there are fewer deliveries than the rule's minimum, no alert opens, and an open alert stays open only if at least
    one of them failed.
    """
    settled = succeeded + failed
    percent = 100 * failed / settled if settled else 0.0
    if settled < rule.minimum:
        return was_on and failed > 0, percent
    return is_above(percent, rule.threshold, was_on), percent


# -- changes of an alert ------------------------------------------------------------------------------


def after(known: Alert | None, observation: Observation, rules: Rules, now: Instant, new_id: UUID) -> Step | None:
    """The step after an observation; None if nothing changes. `known` is the newest alert of its subject."""
    rule = rules.of(observation.rule, observation.endpoint_id)
    if observation.on and rule.enabled:
        return _told_if_due(_open(known, observation, rule, now, new_id), known, rules, now)
    if known is None or not known.is_open:
        return None
    return ended(known, Ending.RECOVERED if rule.enabled else Ending.RULE_CHANGED, rules, now)


def ended(alert: Alert, why: Ending, rules: Rules, now: Instant) -> Step:
    """End an alert. If its start was announced, its end is announced too, except for alerts about single
    occurrences."""
    told = alert.told and alert.rule not in OCCURRENCES
    return _end_told_if_due(replace(alert, ended_at=now, ended_because=why, told=told), rules, now)


def reviewed(alert: Alert, rules: Rules, now: Instant) -> Step | None:
    """The step that becomes due because time has passed or a rule has changed: an end, or a withheld announcement."""
    if not alert.is_open:
        return _if_new(_end_told_if_due(alert, rules, now), alert)
    if not rules.holds_for(alert.rule, alert.endpoint_id):
        return ended(alert, Ending.RULE_CHANGED, rules, now)
    if alert.rule in OCCURRENCES and not _counts_more(alert, rules.of(alert.rule, alert.endpoint_id), now):
        return ended(alert, Ending.ELAPSED, rules, now)
    return _told_if_due(alert, alert, rules, now)


def _counts_more(alert: Alert, rule: AlertRule, now: Instant) -> bool:
    """Whether further occurrences belong to this alert: it is open, and it is in its cooldown or not yet announced."""
    return alert.is_open and (not alert.told or now < _cooled_at(alert.opened_at, rule))


def _open(known: Alert | None, observation: Observation, rule: AlertRule, now: Instant, new_id: UUID) -> Alert:
    if known is None:
        return _new(observation, rule, now, new_id)
    if observation.rule in OCCURRENCES:
        return (
            _counted(known, observation, now)
            if _counts_more(known, rule, now)
            else _new(observation, rule, now, new_id)
        )
    if known.is_open:
        return _still_seen(known, observation, rule, now)
    if known.told:
        back = _counted(known, observation, now)
        return replace(back, ended_at=None, ended_because=None, threshold=_threshold(rule))
    if known.told_at is not None and now < _cooled_at(known.told_at, rule):
        return _back(known, observation, rule, now)
    return _new(observation, rule, now, new_id)


def _new(observation: Observation, rule: AlertRule, now: Instant, new_id: UUID) -> Alert:
    return Alert(
        alert_id=new_id,
        org_id=rule.org_id,
        rule=observation.rule,
        opened_at=now,
        seen_at=now,
        endpoint_name=observation.endpoint_name,
        value=observation.value,
        threshold=_threshold(rule),
        **observation.details,
    )


def _back(over: Alert, observation: Observation, rule: AlertRule, now: Instant) -> Alert:
    """Reopen an alert within its cooldown, after its end was announced. It remains one entry in the list, but its next
    announcement and its acknowledgement refer to the new occurrence."""
    new = _new(observation, rule, now, over.alert_id)
    return replace(new, count=over.count + 1, told_at=over.told_at, version=over.version)


def _counted(alert: Alert, observation: Observation, now: Instant) -> Alert:
    """Count another occurrence. The alert keeps the text of the first one, because that is the one that was
    announced."""
    return replace(alert, count=alert.count + 1, seen_at=now, value=observation.value)


def _still_seen(alert: Alert, observation: Observation, rule: AlertRule, now: Instant) -> Alert:
    if observation.rule not in MEASURED or now < alert.seen_at + SEEN_EVERY:
        return alert
    return replace(alert, seen_at=now, value=observation.value, threshold=_threshold(rule))


def _threshold(rule: AlertRule) -> float | None:
    """The threshold of a measured rule, otherwise None. 0 is a valid threshold: a single dead letter exceeds it."""
    return rule.threshold if rule.rule in MEASURED else None


# -- announcements and reviews -----------------------------------------------------------


def _told_if_due(alert: Alert, before: Alert | None, rules: Rules, now: Instant) -> Step | None:
    news = None
    if not alert.told and _held_until(alert, rules, now) <= now:
        alert, news = replace(alert, told=True, told_at=now), News.FIRED
    return _if_new(Step(_to_be_reviewed(alert, rules, now), news), before)


def _end_told_if_due(over: Alert, rules: Rules, now: Instant) -> Step:
    """Announce the end of an announced alert, either now or when the current silence ends. If the alert reopens during
    the silence, nothing is announced."""
    if not over.told:
        return Step(replace(over, review_at=_may_return_until(over, rules, now)))
    silent_until = rules.silent_until(over.rule, over.endpoint_id, now)
    if silent_until > now:
        return Step(replace(over, review_at=silent_until))
    return Step(replace(over, told=False, review_at=_may_return_until(over, rules, now)), News.RECOVERED)


def _may_return_until(over: Alert, rules: Rules, now: Instant) -> Instant | None:
    """The time until which the alert may reopen, which is the end of its cooldown. None if that time has passed, or if
    the alert cannot reopen.

    The caller stores this time as the alert's `review_at`, so that the alert is not cleaned up before it.
    """
    if over.told_at is None or over.rule in OCCURRENCES:
        return None
    cooled_at = _cooled_at(over.told_at, rules.of(over.rule, over.endpoint_id))
    return cooled_at if cooled_at > now else None


def _to_be_reviewed(alert: Alert, rules: Rules, now: Instant) -> Alert:
    """Set the time of the next review. Measured alerts are always due. Withheld alerts are due when they may be
    announced. An announced alert about a single occurrence is due when its cooldown ends."""
    if alert.rule in MEASURED:
        return replace(alert, review_at=alert.opened_at)
    if not alert.told:
        return replace(alert, review_at=_held_until(alert, rules, now))
    if alert.rule in OCCURRENCES:
        return replace(alert, review_at=_cooled_at(alert.opened_at, rules.of(alert.rule, alert.endpoint_id)))
    return replace(alert, review_at=None)


def _held_until(alert: Alert, rules: Rules, now: Instant) -> Instant:
    """The earliest time at which the start of the alert may be announced, given the silences and the alert's
    cooldown."""
    rule = rules.of(alert.rule, alert.endpoint_id)
    cooled_at = 0 if alert.told_at is None else _cooled_at(alert.told_at, rule)
    return max(cooled_at, rules.silent_until(alert.rule, alert.endpoint_id, now))


def _cooled_at(since: Instant, rule: AlertRule) -> Instant:
    return since + seconds(rule.cooldown_seconds)


def _if_new(step: Step, before: Alert | None) -> Step | None:
    return None if step.alert == before else step


TEST_PAUSE_SECONDS = 5
"""The minimum time between two tests of one channel."""
TESTS_AN_HOUR_MAX = 60
"""The maximum number of tests for one organization in an hour. It is high enough to set up a channel for each team and
to test each channel twice within an hour."""
ADDRESSES_AN_HOUR_MAX = 100
"""The maximum number of addresses to which the tests of one organization may send mail in an hour: five times the
maximum for one channel."""
_HOUR = 3_600 * SECOND
_TOO_MANY = (
    f"a channel can be tested once in {TEST_PAUSE_SECONDS} seconds, and all channels of an organization together "
    f"{TESTS_AN_HOUR_MAX} times an hour, with mail to at most {ADDRESSES_AN_HOUR_MAX} addresses; "
    "each channel shows the result of its last test"
)


def check_pace(tests: Sequence[ChannelTest], wanted: ChannelTest) -> None:
    """Raise Overloaded, with the time to wait, if too many tests were requested recently. `tests` are oldest first."""
    pauses = (one.at + TEST_PAUSE_SECONDS * SECOND for one in tests if one.channel_id == wanted.channel_id)
    may_at = max(*pauses, _room_at(_lately(tests, wanted.at), wanted), wanted.at)
    if may_at > wanted.at:
        raise Overloaded(_TOO_MANY, math.ceil((may_at - wanted.at) / SECOND))


def remembered(
    tests: Sequence[ChannelTest], new: ChannelTest, channel_ids: Collection[object]
) -> tuple[ChannelTest, ...]:
    """The tests to keep: those of the last hour, and the last one of each existing channel."""
    last = {one.channel_id: one for one in tests if one.channel_id in channel_ids}
    kept = {*_lately(tests, new.at), *last.values(), new}
    return tuple(sorted(kept, key=lambda one: (one.at, one.message_id)))


def _room_at(lately: list[ChannelTest], wanted: ChannelTest) -> Instant:
    """When another test is allowed: once enough of the recent tests are an hour old; 0 if it is allowed now."""
    tests, addresses, room_at = len(lately), sum(one.addresses for one in lately), 0
    for one in lately:
        if tests < TESTS_AN_HOUR_MAX and addresses + wanted.addresses <= ADDRESSES_AN_HOUR_MAX:
            break
        tests, addresses, room_at = tests - 1, addresses - one.addresses, one.at + _HOUR
    return room_at


def _lately(tests: Sequence[ChannelTest], now: Instant) -> list[ChannelTest]:
    return [one for one in tests if one.at > now - _HOUR]
