"""R10.3 as a Grafana dashboard: Grafana accepts the file, and the program exports every metric that it queries."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from tests.deploy.exported import complaints
from tests.deploy.grafana_schema import misfits
from tests.docs.pages import ROOT
from tests.support.matrix import each_case

FOLDER = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "doorstep.json").read_text())
WANTED = {
    "Events by status",
    "Events per minute",
    "Delivery success rate",
    "Retry attempts",
    "Time to delivery",
    "Failed events rate over 24 h",
    "Queue depth over time",
    "Endpoints",
}
"""The panels that R10.3 requires."""


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield promql_of(target["expr"])


def promql_of(expression: str) -> str:
    """The expression, with Grafana's variables filled in."""
    return re.sub(r"\$__(rate_interval|range)", "5m", expression.replace("$job", "doorstep"))


def test_the_file_is_what_is_generated() -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_grafana_understands_every_field_of_it() -> None:
    assert misfits(DASHBOARD) == []


@each_case(
    "spoil",
    [
        lambda one: one.update(titel="Doorstep"),
        lambda one: one["panels"][1].update(type=7),
        lambda one: one["panels"][1]["options"].update(colorMode="rainbow"),
        lambda one: one["panels"][1]["targets"][0].update(expression="up"),
        lambda one: one["panels"][8]["fieldConfig"]["defaults"]["custom"].update(showPoints="sometimes"),
        lambda one: one.update(refresh=10),
    ],
    ids=["unknown field", "wrong type", "unknown colour mode", "unknown field of a query", "unknown choice", "number"],
)
def test_the_check_refuses_what_grafana_would_not_understand(spoil: Any) -> None:
    spoilt = copy.deepcopy(DASHBOARD)
    spoil(spoilt)
    assert misfits(spoilt)


def test_it_shows_everything_that_was_asked_for() -> None:
    assert WANTED <= {panel["title"] for panel in DASHBOARD["panels"]}


@each_case("expression", sorted(set(expressions())))
def test_each_query_asks_for_what_is_exported_and_counts_no_installation_twice(expression: str) -> None:
    assert list(complaints(expression)) == []


@each_case(
    ("wrong", "words"),
    [
        ("max(doorstep_evnts)", "not exported"),
        ('max(doorstep_events{state="queued"})', "no label state"),
        ("max by (endpoint) (doorstep_queue_depth)", "no label endpoint"),
        ("sum(doorstep_queue_depth)", "not taken as a maximum"),
        ("max(doorstep_queue_depth) / doorstep_dead_letters", "not taken as a maximum"),
        ("max(doorstep_queue_depth)", "several installations"),
        ('max by (le) (doorstep_retry_attempts_bucket{job=~"a|b"})', "several installations"),
    ],
)
def test_the_check_finds_wrong_names_wrong_labels_and_sums(wrong: str, words: str) -> None:
    assert any(words in complaint for complaint in complaints(wrong))


def test_no_two_panels_lie_on_each_other_and_each_has_a_number_of_its_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_provisioning_names_prometheus_and_a_folder_of_dashboards() -> None:
    source = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())
    provider = yaml.safe_load((FOLDER / "provisioning/dashboards/doorstep.yml").read_text())
    assert [one["type"] for one in source["datasources"]] == ["prometheus"]
    assert [one["type"] for one in provider["providers"]] == ["file"]
