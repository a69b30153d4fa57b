"""When an alert begins, is told, and is over. Thresholds are exact: it fires at more than one, and not one before.

An alert has two sides: what is the case (open, ended) and what those who listen believe (`told`). A message goes out
where they differ and nothing keeps it back: a silence, or the cooldown of a thing that comes and goes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND, Instant, seconds
from doorstep.errors import Overloaded
from doorstep.model.alert import MEASURED, OCCURRENCES, Alert, AlertRule, ChannelTest, Ending, Rule, Silence, subject_of
from doorstep.model.record import Record

OVER_AT = 0.8
"""What has fired is over only at this share of its threshold, so that a value at the threshold does not flap."""

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
"""What holds until an organization says otherwise."""

SEEN_EVERY: Instant = 60 * SECOND
"""How often what goes on is written again with what it measures now: one small write a minute for each."""


class News(StrEnum):
    """What a message says of its alert."""

    FIRED = "fired"
    RECOVERED = "recovered"
    """It is over; the alert says why."""


class Observation(Record, frozen=True, kw_only=True):
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


class Step(Record, frozen=True):
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

    def holds_for(self, rule: Rule, endpoint_id: UUID | None) -> bool:
        """Whether there can be such an alert: some are about the whole organization, unless an endpoint has its own."""
        has_own = endpoint_id is None or rule not in _OF_THE_WHOLE or (rule, endpoint_id) in self._rules
        return has_own and self.of(rule, endpoint_id).enabled

    def silent_until(self, rule: Rule, endpoint_id: UUID | None, now: Instant) -> Instant:
        """When the silence ends that it is in now; long ago if there is none."""
        return max((one.until_at for one in self._silences if one.covers(rule, endpoint_id, now)), default=0)

    @property
    def memory_seconds(self) -> float:
        """What ended longer ago decides nothing: it cannot come back, and is out of the window of the failure rate."""
        cooldowns = (one.cooldown_seconds for one in (*BUILT_IN.values(), *self._rules.values()))
        return max(*cooldowns, self.of(Rule.FAILURE_RATE).window_seconds)


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


def after(known: Alert | None, sight: Observation, rules: Rules, now: Instant, new_id: UUID) -> Step | None:
    """What is to be written after a sight; None where nothing is. `known` is the newest alert of its subject."""
    rule = rules.of(sight.rule, sight.endpoint_id)
    if sight.on and rule.enabled:
        return _told_if_due(_open(known, sight, rule, now, new_id), known, rules, now)
    if known is None or not known.is_open:
        return None
    return ended(known, Ending.RECOVERED if rule.enabled else Ending.RULE_CHANGED, rules, now)


def ended(alert: Alert, why: Ending, rules: Rules, now: Instant) -> Step:
    """It is over. Whoever was told of it is told so, unless it is a thing that just happened."""
    told = alert.told and alert.rule not in OCCURRENCES
    return _end_told_if_due(replace(alert, ended_at=now, ended_because=why, told=told), rules, now)


def reviewed(alert: Alert, rules: Rules, now: Instant) -> Step | None:
    """What time alone, or another rule, does to an alert: it is over, or what was kept back is told."""
    if not alert.is_open:
        return _if_new(_end_told_if_due(alert, rules, now), alert)
    if not rules.holds_for(alert.rule, alert.endpoint_id):
        return ended(alert, Ending.RULE_CHANGED, rules, now)
    if alert.rule in OCCURRENCES and not _counts_more(alert, rules.of(alert.rule, alert.endpoint_id), now):
        return ended(alert, Ending.ELAPSED, rules, now)
    return _told_if_due(alert, alert, rules, now)


def _counts_more(alert: Alert, rule: AlertRule, now: Instant) -> bool:
    """Whether more of what just happens are part of it: until its cooldown ends, and until somebody was told of it."""
    return alert.is_open and (not alert.told or now < _cooled_at(alert.opened_at, rule))


def _open(known: Alert | None, sight: Observation, rule: AlertRule, now: Instant, new_id: UUID) -> Alert:
    if known is None:
        return _new(sight, rule, now, new_id)
    if sight.rule in OCCURRENCES:
        return _counted(known, sight, now) if _counts_more(known, rule, now) else _new(sight, rule, now, new_id)
    if known.is_open:
        return _still_seen(known, sight, rule, now)
    if known.told:
        back = _counted(known, sight, now)
        return replace(back, ended_at=None, ended_because=None, threshold=_threshold(rule))
    if known.told_at is not None and now < _cooled_at(known.told_at, rule):
        return _back(known, sight, rule, now)
    return _new(sight, rule, now, new_id)


def _new(sight: Observation, rule: AlertRule, now: Instant, new_id: UUID) -> Alert:
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
        threshold=_threshold(rule),
        code=sight.code,
        reason=sight.reason,
        delivery_id=sight.delivery_id,
        event_id=sight.event_id,
        event_type=sight.event_type,
    )


def _back(over: Alert, sight: Observation, rule: AlertRule, now: Instant) -> Alert:
    """It was told to be over, and is on again within its cooldown: one line of the list, but what is told of it when the
    cooldown ends, and whether somebody sees to it, is of this time."""
    new = _new(sight, rule, now, over.alert_id)
    return replace(new, count=over.count + 1, told_at=over.told_at, version=over.version)


def _counted(alert: Alert, sight: Observation, now: Instant) -> Alert:
    """The words stay those of the first one, which is what was told."""
    return replace(alert, count=alert.count + 1, seen_at=now, value=sight.value)


def _still_seen(alert: Alert, sight: Observation, rule: AlertRule, now: Instant) -> Alert:
    if sight.rule not in MEASURED or now < alert.seen_at + SEEN_EVERY:
        return alert
    return replace(alert, seen_at=now, value=sight.value, threshold=_threshold(rule))


def _threshold(rule: AlertRule) -> float | None:
    """0 is one too: a single dead letter is more than that."""
    return rule.threshold if rule.rule in MEASURED else None


# -- who is told, and when it is looked at again -----------------------------------------------------------


def _told_if_due(alert: Alert, before: Alert | None, rules: Rules, now: Instant) -> Step | None:
    news = None
    if not alert.told and _held_until(alert, rules, now) <= now:
        alert, news = replace(alert, told=True, told_at=now), News.FIRED
    return _if_new(Step(_to_be_reviewed(alert, rules, now), news), before)


def _end_told_if_due(over: Alert, rules: Rules, now: Instant) -> Step:
    """Whoever was told that it is on hears that it is over at the end of a silence at the latest; if it comes back in
    that silence, they are told nothing at all."""
    if not over.told:
        return Step(replace(over, review_at=_may_return_until(over, rules, now)))
    silent_until = rules.silent_until(over.rule, over.endpoint_id, now)
    if silent_until > now:
        return Step(replace(over, review_at=silent_until))
    return Step(replace(over, told=False, review_at=_may_return_until(over, rules, now)), News.RECOVERED)


def _may_return_until(over: Alert, rules: Rules, now: Instant) -> Instant | None:
    """The end of its cooldown, in which the same is not told again: what is to be reviewed is not cleaned away, so it is
    known until then. None where that is past, or nothing can come back."""
    if over.told_at is None or over.rule in OCCURRENCES:
        return None
    cooled_at = _cooled_at(over.told_at, rules.of(over.rule, over.endpoint_id))
    return cooled_at if cooled_at > now else None


def _to_be_reviewed(alert: Alert, rules: Rules, now: Instant) -> Alert:
    """What is measured, always; what was kept back when it may be told; an occurrence that was told when it is over."""
    if alert.rule in MEASURED:
        return replace(alert, review_at=alert.opened_at)
    if not alert.told:
        return replace(alert, review_at=_held_until(alert, rules, now))
    if alert.rule in OCCURRENCES:
        return replace(alert, review_at=_cooled_at(alert.opened_at, rules.of(alert.rule, alert.endpoint_id)))
    return replace(alert, review_at=None)


def _held_until(alert: Alert, rules: Rules, now: Instant) -> Instant:
    """Until when nobody is told that it is on: for its silence, and for the cooldown of what comes and goes."""
    rule = rules.of(alert.rule, alert.endpoint_id)
    cooled_at = 0 if alert.told_at is None else _cooled_at(alert.told_at, rule)
    return max(cooled_at, rules.silent_until(alert.rule, alert.endpoint_id, now))


def _cooled_at(since: Instant, rule: AlertRule) -> Instant:
    return since + seconds(rule.cooldown_seconds)


def _if_new(step: Step, before: Alert | None) -> Step | None:
    return None if step.alert == before else step


TEST_PAUSE_SECONDS = 5
"""Of one channel."""
TESTS_AN_HOUR_MAX = 60
"""Of an organization: a channel for each of its teams can be set up in an hour, and tried again."""
ADDRESSES_AN_HOUR_MAX = 100
"""That an organization's tests send mail to: five times the most that a channel can have."""
_HOUR = 3_600 * SECOND
_TOO_MANY = (
    f"a channel is tested at most once in {TEST_PAUSE_SECONDS} seconds, and all channels of an organization together "
    f"{TESTS_AN_HOUR_MAX} times an hour, by mail to {ADDRESSES_AN_HOUR_MAX} addresses; "
    "each channel shows what came of its last test"
)


def check_pace(tests: Sequence[ChannelTest], wanted: ChannelTest) -> None:
    """Overloaded, with when it may be made, for a test that is too many after these, the oldest first."""
    pauses = (one.at + TEST_PAUSE_SECONDS * SECOND for one in tests if one.channel_id == wanted.channel_id)
    may_at = max(*pauses, _room_at(_lately(tests, wanted.at), wanted), wanted.at)
    if may_at > wanted.at:
        raise Overloaded(_TOO_MANY, math.ceil((may_at - wanted.at) / SECOND))


def remembered(
    tests: Sequence[ChannelTest], new: ChannelTest, channel_ids: Collection[object]
) -> tuple[ChannelTest, ...]:
    """What is to be kept: the tests of the last hour, and the last one of each channel that is there."""
    last = {one.channel_id: one for one in tests if one.channel_id in channel_ids}
    kept = {*_lately(tests, new.at), *last.values(), new}
    return tuple(sorted(kept, key=lambda one: (one.at, one.message_id)))


def _room_at(lately: list[ChannelTest], wanted: ChannelTest) -> Instant:
    """When enough of them are an hour old; 0 where there is room."""
    tests, addresses, room_at = len(lately), sum(one.addresses for one in lately), 0
    for one in lately:
        if tests < TESTS_AN_HOUR_MAX and addresses + wanted.addresses <= ADDRESSES_AN_HOUR_MAX:
            break
        tests, addresses, room_at = tests - 1, addresses - one.addresses, one.at + _HOUR
    return room_at


def _lately(tests: Sequence[ChannelTest], now: Instant) -> list[ChannelTest]:
    return [one for one in tests if one.at > now - _HOUR]
