"""How the console says what alerts are about: rules, measures, ends. Pure."""

from __future__ import annotations

from typing import NamedTuple

from doorstep.clock import seconds
from doorstep.console.formatting import amount, lasting
from doorstep.model.alert import MEASURED, Alert, AlertRule, Ending, Rule
from doorstep.policy.alert_messages import link_to, percent, percent_as_set


class RuleWords(NamedTuple):
    name: str
    fires: str
    """When it does, as the end of a sentence; `{}` stands for its threshold."""
    threshold: str = ""
    """What its threshold is, as the label of an input."""


RULES: dict[Rule, RuleWords] = {
    Rule.DEAD_LETTER: RuleWords("Dead letter", "a delivery fails for good; told once for each endpoint and cause"),
    Rule.FAILURE_RATE: RuleWords(
        "Failure rate",
        "more than {} of the deliveries that came to an end failed for good",
        "More than so many percent",
    ),
    Rule.DEAD_LETTERS: RuleWords("Dead letters", "more dead letters than {} lie there", "More than so many"),
    Rule.CIRCUIT_OPENED: RuleWords(
        "Circuit opened", "an endpoint failed so often in a row that its deliveries are held"
    ),
    Rule.ENDPOINT_DISABLED: RuleWords("Endpoint disabled", "an endpoint asked for it, or failed for days"),
    Rule.OLDEST_DUE: RuleWords(
        "Oldest due", "a delivery that nothing holds is late by more than {}", "Late by more than"
    ),
}
ENDINGS: dict[Ending, str] = {
    Ending.RECOVERED: "it works again",
    Ending.ELAPSED: "nothing more of it came within its cooldown",
    Ending.ENDPOINT_DELETED: "the endpoint was deleted",
    Ending.ENDPOINT_PAUSED: "the endpoint was paused",
    Ending.RULE_CHANGED: "its rule was turned off or reset",
}
_PLACES = {
    "events": "Look at the event",
    "dead-letters": "Look at the dead letters",
    "endpoints": "Look at the endpoint",
    "retry-queue": "Look at the retry queue",
}


def measured(rule: Rule, value: float | None) -> str:
    """What was measured, in its unit; a dash for what is not."""
    if value is None or rule not in MEASURED:
        return "–"
    return percent(value) if rule is Rule.FAILURE_RATE else _amount(rule, value)


def threshold(rule: Rule, value: float | None) -> str:
    """The same for what it was measured against."""
    if value is None or rule not in MEASURED:
        return "–"
    return percent_as_set(value) if rule is Rule.FAILURE_RATE else _amount(rule, value)


def _amount(rule: Rule, value: float) -> str:
    return lasting(seconds(value)) if rule is Rule.OLDEST_DUE else amount(value)


def fires(rule: AlertRule) -> str:
    """`more than 5% of the deliveries … within 15 min, of 20 at least`"""
    said = RULES[rule.rule].fires.format(threshold(rule.rule, rule.threshold))
    if rule.rule is not Rule.FAILURE_RATE:
        return said
    return f"{said} within {lasting(seconds(rule.window_seconds))}, of {amount(rule.minimum)} at least"


def repair(alert: Alert) -> tuple[str, str]:
    """Where something can be done about it, and how that link is called."""
    path = link_to(alert, "")
    return path, _PLACES[path.split("/")[2].partition("?")[0]]
