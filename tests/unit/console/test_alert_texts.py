"""How the console words the measured value of an alert and its threshold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from doorstep.console.pages.alerts import fires, measured, threshold
from doorstep.model.alert import AlertRule, Rule
from tests.support.builders import new_id


@pytest.mark.parametrize(
    ("value", "said", "set_to"),
    [(0.02, "0.1%", "0.02%"), (0.0, "0%", "0%"), (5.0, "5%", "5%"), (33.3333, "33.3%", "33.3333%"),
     (99.99, "99.9%", "99.99%"), (100.0, "100%", "100%")],
)  # fmt: skip
def test_a_measured_rate_is_rounded_and_a_threshold_is_not(value: float, said: str, set_to: str) -> None:
    assert (measured(Rule.FAILURE_RATE, value), threshold(Rule.FAILURE_RATE, value)) == (said, set_to)


def test_a_rule_tells_the_rate_that_was_set() -> None:
    rule = AlertRule(org_id=new_id(), rule=Rule.FAILURE_RATE, threshold=0.02)
    assert fires(rule).startswith("more than 0.02% of the finished deliveries")


@pytest.mark.parametrize("say", [measured, threshold])
def test_what_is_not_measured_has_a_dash(say: Callable[[Rule, float | None], str]) -> None:
    for rule, value in ((Rule.FAILURE_RATE, None), (Rule.DEAD_LETTER, 1.0)):
        assert say(rule, value) == "–"
    assert (say(Rule.OLDEST_DUE, 300.0).split(), say(Rule.DEAD_LETTERS, 50.0)) == (["5", "min"], "50")
