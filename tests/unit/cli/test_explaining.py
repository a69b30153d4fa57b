"""`doorstep policy explain`, from the arguments to the printed table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from doorstep.cli.main import app

NOON = ("--accepted", "2026-11-15T12:00:00Z")


def explained(*arguments: str, **environment: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["policy", "explain", *arguments, *NOON, "--json"], env=environment)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def shown(*arguments: str, **environment: str) -> str:
    done = CliRunner().invoke(app, ["policy", "explain", *arguments, *NOON], env=environment)
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def test_a_policy_by_its_name_with_clock_times() -> None:
    assert explained("triggers") == {
        "policy": "triggers",
        "delays": [60, 300, 900],
        "jitter": 0,
        "deadline_seconds": None,
        "retry_on_recovery": False,
        "manual": False,
        "next_probe_at": None,
        "total_seconds": 1_260,
        "attempts": [
            attempt(1, 0, "12:00:00", "12:00:00", "12:00:00"),
            attempt(2, 60, "12:01:00", "12:01:00", "12:01:00"),
            attempt(3, 300, "12:06:00", "12:06:00", "12:06:00"),
            attempt(4, 900, "12:21:00", "12:21:00", "12:21:00"),
        ],
    }


def attempt(number: int, delay: float, earliest: str, planned: str, latest: str) -> dict[str, Any]:
    times = {"earliest_at": earliest, "planned_at": planned, "latest_at": latest}
    day = {name: f"2026-11-15T{time}.000000Z" for name, time in times.items()}
    return {"attempt": number, "delay_seconds": delay, **day, "certain": True}


def test_people_read_the_same_in_a_table() -> None:
    words = shown("60s,5m,15m")
    assert "4 15 min 2026-11-15 12:21:00 2026-11-15 12:18:54 2026-11-15 12:23:06" in words
    assert "4 attempts (3 retries) over 21 min, 2 min 6 s sooner or later by the jitter of ±10%" in words


def test_pauses_can_be_given_as_they_are() -> None:
    assert explained("5s,2m,1h", "--jitter", "0%")["delays"] == [5, 120, 3_600]


def test_standard_is_what_the_settings_make_of_it() -> None:
    assert explained("standard", DOORSTEP_RETRY_DELAYS="1,2")["delays"] == [1, 2]


def test_the_installation_s_limit_is_shown_and_named() -> None:
    assert "cut to 2 by DOORSTEP_MAX_RETRY_ATTEMPTS" in shown("patient", DOORSTEP_MAX_RETRY_ATTEMPTS="2")


def test_a_deadline_cuts_the_schedule_and_doubtful_tries_are_marked() -> None:
    found = explained("60s,300s,900s", "--deadline", "6m")
    assert [(one["attempt"], one["certain"]) for one in found["attempts"]] == [(1, True), (2, True), (3, False)]
    assert "only if the jitter" in shown("60s,300s,900s", "--deadline", "6m")


def test_a_policy_that_never_retries_says_so_and_what_becomes_of_a_failure() -> None:
    assert "tried once and never retried automatically: after a failure, it waits for an operator." in shown("manual")
    assert "then it becomes a dead letter." in shown("5s")


@pytest.mark.parametrize(("policy", "brought_forward"), [("standard", True), ("patient", True), ("quick", False)])
def test_it_says_whether_a_recovery_brings_retries_forward(policy: str, brought_forward: bool) -> None:
    assert explained(policy)["retry_on_recovery"] == brought_forward
    assert ("brought forward when the receiver is back" in shown(policy)) == brought_forward


@pytest.mark.parametrize(
    "arguments",
    [("no-such-policy",), ("5s,soon",), (), ("standard", "--endpoint", "shop"), ("60d",), ("5s", "--jitter", "200%")],
)
def test_what_is_no_policy_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["policy", "explain", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr
