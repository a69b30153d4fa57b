"""Prometheus: the alert rules fire at their thresholds, and a real Prometheus finds every metric that dashboard and
rules use."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from doorstep.model.alert import AlertRule, Rule
from doorstep.policy.alerts import BUILT_IN
from tests.deploy.exported import complaints, selectors
from tests.deploy.test_grafana import DASHBOARD
from tests.docs.pages import ROOT
from tests.support.matrix import each_case
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.program import Program, serving, wait_for
from tests.support.receiver import Receiver, receiving

FOLDER = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"][0]["rules"]
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")


def needs(tool: str | None, name: str) -> None:
    if tool is None:
        warnings.warn(f"THE RULES ARE NOT RUN: {name} is not on this machine", stacklevel=2)
        pytest.skip(f"{name} is not on this machine")


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    needs(PROMTOOL, "promtool")
    return subprocess.run(
        [PROMTOOL or "", *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@each_case("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_each_rule_asks_for_what_is_exported(rule: dict[str, Any]) -> None:
    assert list(complaints(rule["expr"])) == []
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description"}


def test_each_alert_fires_at_its_threshold_and_not_one_before() -> None:
    done = promtool(FOLDER, "test", "rules", "rules_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    tested = (FOLDER / "rules_test.yml").read_text()
    assert all(f"alertname: {rule['alert']}" in tested for rule in RULES)


@each_case(
    ("alert", "rule"),
    [
        ("DoorstepFailureRate", Rule.FAILURE_RATE),
        ("DoorstepDeadLetters", Rule.DEAD_LETTERS),
        ("DoorstepOldestDue", Rule.OLDEST_DUE),
    ],
)
def test_what_doorstep_s_own_rules_have_too_has_their_numbers(alert: str, rule: Rule) -> None:
    (expression,) = (one["expr"] for one in RULES if one["alert"] == alert)
    assert {float(one) for one in re.findall(r">=? ([\d.]+)", expression)} == thresholds(BUILT_IN[rule])
    spans = {60 * float(one) for one in re.findall(r"\[(\d+)m\]", expression)}
    assert spans == {one for one in (BUILT_IN[rule].window_seconds,) if one}


def thresholds(rule: AlertRule) -> set[float]:
    """The thresholds as the expressions contain them: a failure rate is a fraction there, not a percentage."""
    return {rule.threshold / 100, float(rule.minimum)} if rule.rule is Rule.FAILURE_RATE else {rule.threshold}


def test_the_failure_rate_counts_what_the_built_in_rule_counts() -> None:
    (expression,) = (one["expr"] for one in RULES if one["alert"] == "DoorstepFailureRate")
    counted = {(one.name, matcher.value) for one, _ in selectors(expression) for matcher in one.matchers.matchers}
    assert counted == {("doorstep_attempts_total", "succeeded"), ("doorstep_attempts_total", "dead")}


@each_case(
    ("threshold", "changed"),
    [
        ("> 0.05", ">= 0.05"),
        ("> 50", ">= 50"),
        (">= 20", ">= 10"),
        ("> 300", "> 299"),
        ("max by (job) (doorstep_dead", "sum by (job) (doorstep_dead"),
        ('attempts_total{outcome="dead"}', "deliveries_dead_total"),
        ("for: 15m", "for: 14m"),
        ('{state="waiting"}', ""),
    ],
)
def test_a_threshold_that_is_off_by_one_is_noticed(tmp_path: Path, threshold: str, changed: str) -> None:
    rules = (FOLDER / "rules.yml").read_text()
    assert threshold in rules
    (tmp_path / "rules.yml").write_text(rules.replace(threshold, changed))
    shutil.copy(FOLDER / "rules_test.yml", tmp_path)
    assert promtool(tmp_path, "test", "rules", "rules_test.yml").returncode != 0


def test_the_part_of_a_configuration_is_one_that_prometheus_takes() -> None:
    done = promtool(FOLDER, "check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_has_an_answer_to_every_query_of_the_dashboard(tmp_path: Path) -> None:
    needs(PROMETHEUS, "prometheus")
    environment = {"DOORSTEP_METRICS_ENDPOINTS": "10"}
    with receiving() as receiver, serving(tmp_path, environment=environment) as program:
        enrol(program, receiver)
        with prometheus(tmp_path, program) as ask:
            wait_for(lambda: ask("doorstep_events_created_total"))
            send(program)
            wait_for(lambda: ask("max(rate(doorstep_events_delivered_total[10s])) > 0"))
            silent = lambda: [expression for expression in expressions() if not ask(expression)]
            wait_for(
                lambda: not silent(), lambda: str(silent())
            )  # endpoints need two scrapes after their first delivery
            assert ask("max(doorstep_no_such_metric)") == []


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            filled = target["expr"].replace("$job", "doorstep").replace("$__rate_interval", "10s")
            yield filled.replace("$__range", "1m")


def enrol(program: Program, receiver: Receiver) -> None:
    made = program.post("/v1/endpoints", {"name": "shop", "url": receiver.url})
    assert made.status == 201, made.body


def send(program: Program) -> None:
    for _ in range(5):
        assert program.post("/v1/events", {"event_type": "order.paid", "payload": 1}).status == 202


@contextmanager
def prometheus(folder: Path, program: Program) -> Iterator[Any]:
    """A Prometheus that scrapes every half second; yields a function to query it."""
    target = program.url.removeprefix("http://")
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms, scrape_timeout: 400ms}\n"
        f"scrape_configs: [{{job_name: doorstep, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    port = free_port()
    process = subprocess.Popen(
        [
            PROMETHEUS or "",
            "--config.file=prometheus.yml",
            f"--storage.tsdb.path={folder / 'series'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ],
        cwd=folder,
    )

    def ask(expression: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=PATIENCE_SECONDS
            ) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            assert error.code == 503, f"{expression}: {error.read()!r}"  # it is still starting
            return []
        except OSError:
            return []

    try:
        yield ask
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
