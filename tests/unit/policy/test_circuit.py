"""The life of a circuit (R6): closed, open, half-open, and closed again with a ramp-up."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from doorstep.clock import DAY, SECOND, seconds
from doorstep.model.endpoint import Circuit, CircuitRules, CircuitState
from doorstep.policy.circuit import (
    after_failure,
    after_success,
    after_uncounted,
    allowance,
    is_hopeless,
    probe_pause,
    probing,
)
from tests.support.builders import NOW, new_id
from tests.support.matrix import each_case

RULES = CircuitRules()
FRESH = Circuit(endpoint_id=new_id())


def failed(times: int, circuit: Circuit = FRESH) -> Circuit:
    for second in range(times):
        circuit = after_failure(circuit, RULES, NOW + second * SECOND)
    return circuit


def test_four_failures_in_a_row_leave_the_circuit_closed() -> None:
    assert (failed(4).state, failed(4).failures) == (CircuitState.CLOSED, 4)


def test_the_fifth_failure_in_a_row_opens_it_for_a_second() -> None:
    opened = failed(5)
    assert (opened.state, opened.changed_at) == (CircuitState.OPEN, NOW + 4 * SECOND)
    assert opened.until == NOW + 4 * SECOND + SECOND


@each_case(
    ("outage", "pause"),
    [(0, 1), (3.9, 1), (4, 1), (8, 2), (60, 15), (600, 150), (1_200, 300), (1_201, 300), (1e6, 300)],
)
def test_the_pause_before_a_probe_is_a_quarter_of_the_outage_from_a_second_to_five_minutes(
    outage: float, pause: float
) -> None:
    assert probe_pause(seconds(outage), RULES) == seconds(pause)


def test_equal_bounds_make_all_pauses_equal() -> None:
    fixed = CircuitRules(probe_seconds_min=300, open_seconds=300)
    assert {probe_pause(seconds(outage), fixed) for outage in (0, 60, 1_199, 86_400)} == {300 * SECOND}


@each_case(("hours", "most"), [(1, 40), (24, 316)])
def test_an_endpoint_that_stays_down_is_probed_40_times_in_the_first_hour_and_every_five_minutes_later(
    hours: int, most: int
) -> None:
    circuit, probes, last_at = failed(5), [], NOW
    while circuit.until is not None and circuit.until < NOW + hours * 3_600 * SECOND:
        last_at = circuit.until
        probe = probing(circuit, last_at, last_at + 35 * SECOND)
        assert probe is not None
        circuit = after_failure(probe, RULES, last_at)
        probes.append(last_at)
    assert len(probes) <= most
    assert all(later - sooner >= 300 * SECOND for sooner, later in pairwise(probes) if sooner - NOW > 1_200 * SECOND)


def test_a_circuit_that_is_switched_off_never_opens() -> None:
    off = CircuitRules(enabled=False)
    circuit = FRESH
    for second in range(100):
        circuit = after_failure(circuit, off, NOW + second * SECOND)
    assert (circuit.state, circuit.failures) == (CircuitState.CLOSED, 100)
    assert is_hopeless(circuit, off, NOW + 5 * DAY)


def test_switching_it_off_closes_an_open_circuit_with_the_next_failure() -> None:
    closed = after_failure(failed(5), CircuitRules(enabled=False), NOW + DAY)
    assert (closed.state, closed.failures) == (CircuitState.CLOSED, 6)


def test_a_success_resets_the_count() -> None:
    assert after_success(failed(4), NOW) == FRESH
    assert failed(4, after_success(failed(4), NOW)).state is CircuitState.CLOSED


def test_a_healthy_circuit_is_not_changed_by_success_so_it_costs_no_write() -> None:
    assert after_success(FRESH, NOW) is FRESH


def test_stragglers_that_fail_while_it_is_open_do_not_prolong_the_pause() -> None:
    opened = failed(5)
    straggled = after_failure(opened, RULES, NOW + 100 * SECOND)
    assert (straggled.until, straggled.changed_at, straggled.failures) == (opened.until, opened.changed_at, 6)


def test_no_probe_goes_before_the_pause_is_over() -> None:
    opened = failed(5)
    assert opened.until is not None
    assert probing(opened, opened.until - 1, 0) is None
    assert probing(FRESH, NOW + DAY, 0) is None


def test_when_the_pause_is_over_one_probe_goes_and_others_wait_until_it_is_lost() -> None:
    opened = failed(5)
    assert opened.until is not None
    half_open = probing(opened, opened.until, opened.until + 35 * SECOND)
    assert half_open is not None and half_open.state is CircuitState.HALF_OPEN
    assert probing(half_open, opened.until + 34 * SECOND, 0) is None
    again = probing(half_open, opened.until + 35 * SECOND, NOW + DAY)
    assert again is not None and again.until == NOW + DAY


def test_a_probe_that_succeeds_closes_the_circuit_and_forgets_the_failures() -> None:
    half_open = probing(failed(5), NOW + DAY, NOW + DAY + SECOND)
    assert half_open is not None
    closed = after_success(half_open, NOW + DAY)
    assert (closed.state, closed.failures, closed.failing_since, closed.until) == (CircuitState.CLOSED, 0, None, None)
    assert closed.changed_at == NOW + DAY


def test_a_probe_that_fails_opens_it_for_another_pause() -> None:
    half_open = probing(failed(5), NOW + 60 * SECOND, NOW + 61 * SECOND)
    assert half_open is not None
    opened = after_failure(half_open, RULES, NOW + 60 * SECOND)
    assert (opened.state, opened.until) == (CircuitState.OPEN, NOW + 75 * SECOND)


def test_a_result_that_does_not_count_frees_the_way_for_another_probe_and_changes_nothing_else() -> None:
    opened = failed(5)
    half_open = probing(opened, NOW + DAY, NOW + DAY + 35 * SECOND)
    assert half_open is not None
    freed = after_uncounted(half_open, NOW + DAY + SECOND)
    assert (freed.state, freed.failures, freed.until) == (CircuitState.HALF_OPEN, 5, NOW + DAY + SECOND)
    assert after_uncounted(opened, NOW) is opened
    assert after_uncounted(FRESH, NOW) is FRESH


def test_the_success_of_anyone_closes_an_open_circuit() -> None:
    assert after_success(failed(5), NOW).state is CircuitState.CLOSED


def test_nothing_is_allowed_while_it_is_open_or_half_open() -> None:
    half_open = probing(failed(5), NOW + DAY, NOW + DAY + SECOND)
    assert allowance(failed(5), NOW) == 0
    assert allowance(half_open, NOW + DAY) == 0


def test_after_a_recovery_the_allowance_doubles_each_quarter_of_a_second_and_then_ends() -> None:
    closed = after_success(failed(5), NOW)
    ramp = [allowance(closed, NOW + step * SECOND // 4) for step in range(12)]
    assert ramp == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, None, None]


def test_a_circuit_that_was_never_open_allows_everything() -> None:
    assert allowance(None, NOW) is None
    assert allowance(FRESH, NOW) is None
    assert allowance(failed(4), NOW) is None


def test_five_days_without_one_success_are_hopeless() -> None:
    opened = failed(5)
    assert not is_hopeless(opened, RULES, NOW + 5 * DAY - 1)
    assert is_hopeless(opened, RULES, NOW + 5 * DAY)
    assert not is_hopeless(after_success(opened, NOW), RULES, NOW + 9 * DAY)


def test_a_few_failures_are_not_hopeless_however_far_apart() -> None:
    twice = after_failure(after_failure(FRESH, RULES, NOW), RULES, NOW + 5 * DAY)
    assert (twice.state, twice.failures) == (CircuitState.CLOSED, 2)
    assert not is_hopeless(twice, RULES, NOW + 5 * DAY)


def test_a_stretch_of_failures_begins_anew_after_days_in_which_nobody_tried() -> None:
    probe = probing(failed(5), NOW + 6 * DAY, NOW + 6 * DAY + 35 * SECOND)
    assert probe is not None
    again = after_failure(probe, RULES, NOW + 6 * DAY + SECOND)
    assert (again.state, again.failures, again.failing_since) == (CircuitState.OPEN, 6, NOW + 6 * DAY)
    assert not is_hopeless(again, RULES, NOW + 6 * DAY + SECOND)
    forced = after_failure(failed(5), RULES, NOW + 6 * DAY)
    assert not is_hopeless(forced, RULES, NOW + 6 * DAY), "nor is an operator's single try the end of it"


def test_an_endpoint_that_is_tried_in_vain_once_a_day_is_hopeless_after_five() -> None:
    circuit = failed(5)
    for day in range(1, 7):
        at = NOW + day * DAY
        probe = probing(circuit, at, at + 35 * SECOND)
        assert probe is not None
        circuit = after_failure(probe, RULES, at + SECOND)
        assert is_hopeless(circuit, RULES, at + SECOND) == (day >= 5)


def test_every_endpoint_has_its_own_rules() -> None:
    strict = CircuitRules(failures_max=1, open_seconds=7, disable_after_seconds=60)
    opened = after_failure(FRESH, strict, NOW)
    assert (opened.state, opened.until) == (CircuitState.OPEN, NOW + SECOND)
    probe = probing(opened, NOW + 40 * SECOND, NOW + 41 * SECOND)
    assert probe is not None and after_failure(probe, strict, NOW + 40 * SECOND).until == NOW + 47 * SECOND
    assert is_hopeless(opened, strict, NOW + 60 * SECOND)


@given(st.lists(st.booleans(), max_size=60))
def test_it_is_open_exactly_after_five_failures_in_a_row_since_the_last_success(results: list[bool]) -> None:
    circuit = FRESH
    row = 0
    for second, succeeded in enumerate(results):
        at = NOW + second * SECOND
        circuit = after_success(circuit, at) if succeeded else after_failure(circuit, RULES, at)
        row = 0 if succeeded else row + 1
        assert (circuit.state is CircuitState.OPEN) == (row >= RULES.failures_max)
        assert circuit.failures == row
        assert (circuit.failing_since is None) == (row == 0)
