"""The tables in docs/explanation/retries.md match the code."""

from __future__ import annotations

import re

from doorstep.model.attempt import Category, Reply
from doorstep.model.endpoint import CircuitRules
from doorstep.policy.classification import MEANINGS, classify
from doorstep.policy.retry import BUILT_IN, RETRY_AFTER_MAX_SECONDS, RETRY_AFTER_MIN_SECONDS
from tests.docs.pages import EXPLANATION, rows
from tests.support.builders import an_endpoint, new_id

RETRIES = EXPLANATION / "retries.md"
UNITS = {"s": 1, "min": 60, "h": 3_600}


def test_the_table_of_policies_is_that_of_the_code() -> None:
    written = {row[0].split("`")[1]: _delays(row[1]) for row in rows(RETRIES, "## 2. Scheduling")}
    assert written == {name: [float(delay) for delay in policy.delays] for name, policy in BUILT_IN.items()}


def test_the_policies_whose_retries_a_recovery_brings_forward_are_marked_as_such() -> None:
    marked = {row[0].split("`")[1] for row in rows(RETRIES, "## 2. Scheduling") if row[2] == "brought forward"}
    assert marked == {name for name, policy in BUILT_IN.items() if policy.retry_on_recovery}


def test_the_default_policy_is_marked_as_such() -> None:
    assert [row[0] for row in rows(RETRIES, "## 2. Scheduling") if "default" in row[0]] == ["`standard` (default)"]


def test_the_table_of_codes_names_each_with_its_category() -> None:
    written = {
        code: category.split()[0].rstrip(",:")
        for _, codes, category in rows(RETRIES, "## 1. Classification")
        for code in re.findall(r"`([A-Z_]+)`", codes)
    }
    assert written == {code: str(meaning.category) for code, meaning in MEANINGS.items()}


def test_the_table_of_codes_says_of_each_status_what_the_code_makes_of_it() -> None:
    endpoint = an_endpoint(new_id())
    for what, codes, category in rows(RETRIES, "## 1. Classification"):
        expected = re.findall(r"`([A-Z_]+)`", codes)
        for position, status in enumerate(_statuses(what)):
            outcome = classify(Reply(started_at=0, finished_at=0, status=status), endpoint)
            if not expected:
                assert outcome.succeeded
                continue
            assert outcome.code == expected[min(position, len(expected) - 1)], status
            assert outcome.category is Category(category.split()[0].rstrip(",:")), status
            assert outcome.disable_endpoint == ("disables the endpoint" in category), status
            assert outcome.blames_endpoint == ("does not count for the circuit" not in category), status


def test_the_numbers_in_the_text_are_those_of_the_code() -> None:
    text = " ".join(RETRIES.read_text().split())
    rules = CircuitRules()
    assert f"After {rules.failures_max} failures in a row" in text
    pauses = "from one second (`probe_seconds_min`) to five minutes (`open_seconds`)"
    assert (rules.probe_seconds_min, rules.open_seconds) == (1, 300) and pauses in text
    assert f"{rules.disable_after_seconds / 86_400:g} days without one success" in text
    assert (RETRY_AFTER_MIN_SECONDS, RETRY_AFTER_MAX_SECONDS) == (1, 24 * 3_600)
    assert "between 1 second and 24 hours" in text
    assert {name for name, policy in BUILT_IN.items() if policy.jitter != 0.1} == {"triggers"}
    assert "varied by ±10 %" in text


def _delays(cell: str) -> list[float]:
    if cell.startswith("never"):
        return []
    return [0.0 if part == "at once" else _seconds(part) for part in cell.split(", ")]


def _seconds(part: str) -> float:
    number, unit = part.split()
    return float(number) * UNITS[unit]


def _statuses(what: str) -> list[int]:
    """The statuses in a table cell: `408, 425` as listed; for `5xx`, one example of the class."""
    if found := re.fullmatch(r"(?:other )?(\d)xx", what):
        return [int(found[1]) * 100 + (18 if what.startswith("other") else 0 if found[1] != "3" else 2)]
    return [int(part) for part in re.findall(r"\b\d{3}\b", what)] if re.fullmatch(r"[\d, ]+", what) else []
