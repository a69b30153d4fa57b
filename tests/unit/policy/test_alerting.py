"""When an alert begins, is sent and ends, including every edge case."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import SECOND, seconds
from doorstep.model.alert import Alert, AlertRule, Ending, Rule, Silence
from doorstep.policy.alerts import BUILT_IN, News, Observation, Rules, Step, after, ended, failing, is_above, reviewed
from tests.support.matrix import each_case

ORG, SHOP, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
NEW = UUID(int=9)
NOW = 1_000_000 * SECOND
HOUR = seconds(3_600)
PLAIN = Rules(ORG)
OPENED = Observation(rule=Rule.CIRCUIT_OPENED, on=True, endpoint_id=SHOP, endpoint_name="shop")
CLOSED = replace(OPENED, on=False)
LETTER = Observation(rule=Rule.DEAD_LETTER, on=True, endpoint_id=SHOP, cause=7, code="TIMEOUT", reason="slow")


def begun(sight: Observation = OPENED, rules: Rules = PLAIN, now: int = NOW) -> Alert:
    step = after(None, sight, rules, now, NEW)
    assert step is not None
    return step.alert


def written(step: Step | None) -> Step:
    assert step is not None
    return step


# -- thresholds --------------------------------------------------------------------------------------------


@each_case(
    ("value", "was_on", "on"),
    [
        (50, False, False),
        (51, False, True),
        (50.001, False, True),
        (41, True, True),
        (40, True, False),
        (0, False, False),
    ],
)
def test_it_fires_at_more_than_the_threshold_and_is_over_at_four_fifths_of_it(
    value: float, was_on: bool, on: bool
) -> None:
    assert is_above(value, 50, was_on) is on


@each_case("total", [20, 40, 60, 100, 140, 180, 220, 1_000, 100_000])
def test_exactly_five_percent_never_fires_and_one_more_failure_always_does(total: int) -> None:
    rule, failed = BUILT_IN[Rule.FAILURE_RATE], total // 20
    assert failing(total - failed, failed, rule, False) == (False, 5.0)
    assert failing(total - failed, failed + 1, rule, False)[0]


@each_case(
    ("succeeded", "failed", "was_on", "on"),
    [
        (0, 19, False, False),
        (0, 20, False, True),
        (1, 19, False, True),
        (0, 19, True, True),
        (3, 0, True, False),
        (0, 0, True, False),
        (96, 4, True, False),
        (959, 41, True, True),
    ],
)
def test_with_too_few_deliveries_it_stays_as_it_was_unless_none_failed(
    succeeded: int, failed: int, was_on: bool, on: bool
) -> None:
    assert failing(succeeded, failed, BUILT_IN[Rule.FAILURE_RATE], was_on)[0] is on


# -- notified once -----------------------------------------------------------------------------------------


def test_what_begins_is_told_at_once() -> None:
    step = written(after(None, OPENED, PLAIN, NOW, NEW))
    assert step.news is News.FIRED
    assert (step.alert.alert_id, step.alert.told, step.alert.told_at, step.alert.opened_at) == (NEW, True, NOW, NOW)


def test_what_goes_on_is_written_no_more() -> None:
    assert after(begun(), OPENED, PLAIN, NOW + 5, NEW) is None


def test_what_is_over_is_told_to_those_who_were_told_that_it_began() -> None:
    step = written(after(begun(), CLOSED, PLAIN, NOW + 5, NEW))
    assert (step.news, step.alert.ended_at, step.alert.told) == (News.RECOVERED, NOW + 5, False)
    assert after(step.alert, CLOSED, PLAIN, NOW + 6, NEW) is None
    assert after(None, CLOSED, PLAIN, NOW, NEW) is None


def test_what_comes_back_within_the_cooldown_is_the_same_alert_and_told_to_nobody() -> None:
    over = written(after(begun(), CLOSED, PLAIN, NOW + 5, NEW)).alert
    again = written(after(over, OPENED, PLAIN, NOW + HOUR - 1, UUID(int=10)))
    assert (again.news, again.alert.alert_id, again.alert.count, again.alert.is_open) == (None, NEW, 2, True)
    assert written(after(again.alert, CLOSED, PLAIN, NOW + HOUR - 1, NEW)).news is None


def test_what_is_still_on_when_the_cooldown_ends_is_told_then_and_not_a_moment_before() -> None:
    over = written(after(begun(), CLOSED, PLAIN, NOW + 5, NEW)).alert
    again = written(after(over, OPENED, PLAIN, NOW + 10, NEW)).alert
    assert reviewed(again, PLAIN, NOW + HOUR - 1) is None
    assert written(reviewed(again, PLAIN, NOW + HOUR)).news is News.FIRED


def test_what_came_back_is_told_with_its_own_words_and_nobody_has_seen_to_it_yet() -> None:
    first = begun(replace(OPENED, code="TIMEOUT", reason="5 failures in a row", event_type="a"))
    seen_to = replace(first, acknowledged_at=NOW + 1, acknowledged_by="ops", version=3)
    over = written(after(seen_to, CLOSED, PLAIN, NOW + 5, NEW)).alert
    back = replace(OPENED, code="TLS", reason="6 failures in a row", event_type="b")
    told = written(reviewed(written(after(over, back, PLAIN, NOW + 10, UUID(int=10))).alert, PLAIN, NOW + HOUR)).alert
    assert (told.alert_id, told.version, told.count, told.told_at) == (NEW, 3, 2, NOW + HOUR)
    assert (told.code, told.reason, told.event_type) == ("TLS", "6 failures in a row", "b")
    assert (told.opened_at, told.acknowledged_at, told.acknowledged_by) == (NOW + 10, None, "")


def test_what_comes_back_after_the_cooldown_is_a_new_alert() -> None:
    over = written(after(begun(), CLOSED, PLAIN, NOW + 5, NEW)).alert
    again = written(after(over, OPENED, PLAIN, NOW + HOUR, UUID(int=10)))
    assert (again.news, again.alert.alert_id, again.alert.count) == (News.FIRED, UUID(int=10), 1)


# -- occurrences -------------------------------------------------------------------------------------------


def test_more_dead_letters_are_counted_and_the_words_stay_those_of_the_first() -> None:
    step = written(after(begun(LETTER), replace(LETTER, reason="slower"), PLAIN, NOW + 5, UUID(int=10)))
    assert (step.news, step.alert.count, step.alert.reason, step.alert.seen_at) == (None, 2, "slow", NOW + 5)


def test_a_dead_letter_does_not_recover_but_is_over_without_a_word_when_its_cooldown_ends() -> None:
    alert = begun(LETTER)
    assert reviewed(alert, PLAIN, NOW + HOUR - 1) is None
    step = written(reviewed(alert, PLAIN, NOW + HOUR))
    assert (step.news, step.alert.ended_because) == (None, Ending.ELAPSED)
    again = written(after(alert, LETTER, PLAIN, NOW + HOUR, UUID(int=10)))
    assert (again.news, again.alert.alert_id) == (News.FIRED, UUID(int=10))


# -- rules and silences ------------------------------------------------------------------------------------


def test_an_endpoint_s_own_rule_comes_before_the_organization_s_and_that_before_the_built_in_one() -> None:
    general = AlertRule(org_id=ORG, rule=Rule.DEAD_LETTERS, threshold=7)
    own = AlertRule(org_id=ORG, rule=Rule.DEAD_LETTERS, threshold=3, endpoint_id=SHOP)
    rules = Rules(ORG, [general, own])
    assert [rules.of(Rule.DEAD_LETTERS, one).threshold for one in (SHOP, OTHER, None)] == [3, 7, 7]
    assert rules.of(Rule.FAILURE_RATE).threshold == 5
    assert rules.own_of(Rule.DEAD_LETTERS) == {SHOP}


def test_a_rule_that_is_off_fires_nothing_and_ends_what_was_on() -> None:
    off = Rules(ORG, [AlertRule(org_id=ORG, rule=Rule.CIRCUIT_OPENED, enabled=False)])
    assert after(None, OPENED, off, NOW, NEW) is None
    step = written(reviewed(begun(), off, NOW + 5))
    assert (step.alert.ended_at, step.alert.ended_because) == (NOW + 5, Ending.RULE_CHANGED)


@each_case(
    ("silence", "quiet"),
    [
        ({}, True),
        ({"rule": Rule.CIRCUIT_OPENED}, True),
        ({"endpoint_id": SHOP}, True),
        ({"rule": Rule.DEAD_LETTER}, False),
        ({"endpoint_id": OTHER}, False),
        ({"from_at": NOW + 1}, False),
        ({"until_at": NOW}, False),
        ({"until_at": NOW + 1}, True),
    ],
)
def test_a_silence_keeps_back_what_it_is_about_while_it_lasts(silence: dict[str, object], quiet: bool) -> None:
    fields: dict[str, object] = {"silence_id": NEW, "org_id": ORG, "from_at": NOW, "until_at": NOW + HOUR}
    rules = Rules(ORG, silences=[Silence(**fields | silence)])  # type: ignore[arg-type]
    step = written(after(None, OPENED, rules, NOW, NEW))
    assert (step.news is None) is quiet
    assert step.alert.is_open


def silent(from_at: int, until_at: int) -> Rules:
    return Rules(ORG, silences=[Silence(silence_id=NEW, org_id=ORG, from_at=from_at, until_at=until_at)])


def test_what_is_still_on_when_a_silence_ends_is_told_then_and_not_a_moment_before() -> None:
    rules = silent(NOW, NOW + 10)
    alert = begun(rules=rules)
    assert (alert.told, alert.review_at) == (False, NOW + 10)
    assert reviewed(alert, rules, NOW + 9) is None
    assert written(reviewed(alert, rules, NOW + 10)).news is News.FIRED


def test_a_dead_letter_of_a_silence_is_told_when_that_ends() -> None:
    rules = silent(NOW, NOW + 10)
    letter = begun(LETTER, rules)
    assert (letter.told, letter.review_at) == (False, NOW + 10)
    assert reviewed(letter, rules, NOW + 9) is None
    step = written(reviewed(letter, rules, NOW + 10))
    assert (step.news, step.alert.told_at, step.alert.review_at) == (News.FIRED, NOW + 10, NOW + HOUR)
    assert reviewed(step.alert, rules, NOW + 11) is None


def test_a_dead_letter_of_a_silence_longer_than_its_cooldown_is_told_with_all_that_came_to_it_and_then_is_over() -> (
    None
):
    rules = silent(NOW, NOW + 2 * HOUR)
    letter = begun(LETTER, rules)
    assert letter.review_at == NOW + 2 * HOUR
    assert reviewed(letter, rules, NOW + HOUR) is None
    more = written(after(letter, LETTER, rules, NOW + HOUR + 1, UUID(int=10)))
    assert (more.news, more.alert.alert_id, more.alert.count) == (None, NEW, 2)
    step = written(reviewed(more.alert, rules, NOW + 2 * HOUR))
    assert (step.news, step.alert.count) == (News.FIRED, 2)
    over = written(reviewed(step.alert, rules, NOW + 2 * HOUR))
    assert (over.news, over.alert.ended_because) == (None, Ending.ELAPSED)


def test_what_began_and_ended_in_a_silence_is_never_told() -> None:
    rules = silent(NOW, NOW + 10)
    step = ended(begun(rules=rules), Ending.RECOVERED, rules, NOW + 5)
    assert (step.news, step.alert.review_at) == (None, None)
    assert reviewed(step.alert, rules, NOW + 20) is None


def test_a_recovery_in_a_silence_of_what_was_told_before_it_is_told_when_the_silence_ends() -> None:
    rules = silent(NOW + 1, NOW + 10)
    over = ended(begun(), Ending.RECOVERED, rules, NOW + 5)
    assert (over.news, over.alert.ended_at, over.alert.review_at) == (None, NOW + 5, NOW + 10)
    assert reviewed(over.alert, rules, NOW + 9) is None
    step = written(reviewed(over.alert, rules, NOW + 10))
    assert (step.news, step.alert.told, step.alert.review_at) == (News.RECOVERED, False, NOW + HOUR)
    assert reviewed(step.alert, rules, NOW + 11) is None


def test_what_is_over_is_kept_to_be_reviewed_until_its_cooldown_is_over_and_it_can_not_come_back() -> None:
    over = ended(begun(), Ending.RECOVERED, PLAIN, NOW + 5).alert
    assert over.review_at == NOW + HOUR
    assert reviewed(over, PLAIN, NOW + HOUR - 1) is None
    step = written(reviewed(over, PLAIN, NOW + HOUR))
    assert (step.news, step.alert.review_at) == (None, None)
    assert ended(begun(), Ending.RECOVERED, PLAIN, NOW + HOUR).alert.review_at is None
    assert ended(begun(LETTER), Ending.ELAPSED, PLAIN, NOW + 5).alert.review_at is None


def test_what_ends_and_comes_back_within_one_silence_was_on_all_the_time_for_those_who_listen() -> None:
    """This holds although the cooldown is over: recipients believe that the alert is still open, and it is."""
    rules = silent(NOW + 1, NOW + 2 * HOUR)
    over = ended(begun(), Ending.RECOVERED, rules, NOW + 5).alert
    back = written(after(over, OPENED, rules, NOW + HOUR + 1, UUID(int=10)))
    assert (back.news, back.alert.alert_id, back.alert.is_open, back.alert.ended_because) == (None, NEW, True, None)
    assert reviewed(back.alert, PLAIN, NOW + 3 * HOUR) is None
    assert written(after(back.alert, CLOSED, PLAIN, NOW + 3 * HOUR, NEW)).news is News.RECOVERED


# -- when an alert is reviewed -----------------------------------------------------------------------------


def test_what_is_measured_is_always_looked_at_and_what_is_known_by_its_incidents_never() -> None:
    assert begun(Observation(rule=Rule.DEAD_LETTERS, on=True, value=51)).review_at == NOW
    assert begun().review_at is None


def test_a_dead_letter_is_looked_at_when_its_cooldown_ends_also_if_that_is_changed() -> None:
    assert begun(LETTER).review_at == NOW + HOUR
    quick = Rules(ORG, [AlertRule(org_id=ORG, rule=Rule.DEAD_LETTER, cooldown_seconds=60)])
    assert written(reviewed(begun(LETTER), quick, NOW + 1)).alert.review_at == NOW + seconds(60)
    assert quick.memory_seconds == 3_600
    wide = Rules(ORG, [AlertRule(org_id=ORG, rule=Rule.FAILURE_RATE, window_seconds=7_200)])
    assert wide.memory_seconds == 7_200


def test_what_goes_on_is_written_with_what_it_measures_once_a_minute() -> None:
    sight = Observation(rule=Rule.DEAD_LETTERS, on=True, value=51)
    alert = begun(sight)
    more = replace(sight, value=300)
    assert after(alert, more, PLAIN, NOW + seconds(60) - 1, NEW) is None
    step = written(after(alert, more, PLAIN, NOW + seconds(60), NEW))
    assert (step.news, step.alert.value, step.alert.seen_at, step.alert.count) == (None, 300, NOW + seconds(60), 1)


# -- rules that are changed while an alert is open ---------------------------------------------------------


@each_case("rule", [Rule.DEAD_LETTERS, Rule.OLDEST_DUE])
def test_an_endpoint_s_alert_ends_when_its_own_rule_is_reset(rule: Rule) -> None:
    own = Rules(ORG, [AlertRule(org_id=ORG, rule=rule, threshold=1, endpoint_id=SHOP)])
    alert = begun(Observation(rule=rule, on=True, value=2, endpoint_id=SHOP), own)
    assert reviewed(alert, own, NOW + 1) is None
    assert written(reviewed(alert, PLAIN, NOW + 1)).alert.ended_because is Ending.RULE_CHANGED


def test_a_threshold_of_zero_is_one_and_what_is_not_measured_has_none() -> None:
    zero = Rules(ORG, [AlertRule(org_id=ORG, rule=Rule.DEAD_LETTERS, threshold=0)])
    alert = begun(Observation(rule=Rule.DEAD_LETTERS, on=True, value=1), zero)
    assert alert.threshold == 0
    later = written(after(alert, Observation(rule=Rule.DEAD_LETTERS, on=True, value=2), zero, NOW + seconds(61), NEW))
    assert (later.alert.value, later.alert.threshold) == (2, 0)
    assert begun().threshold is None


def test_a_failure_rate_of_an_endpoint_needs_no_rule_of_its_own() -> None:
    alert = begun(Observation(rule=Rule.FAILURE_RATE, on=True, value=9, endpoint_id=SHOP))
    assert reviewed(alert, PLAIN, NOW + 1) is None
