"""The container: its Dockerfile passes a linter, and the compose file names only what exists.

No image registry is needed: the image is not built here. docs/how-to/containers.md says what was run instead.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from doorstep import __version__
from doorstep.config import setting_rows
from tests.docs.pages import ROOT
from tests.support.patience import PATIENCE_SECONDS

FOLDER = ROOT / "deploy" / "container"
DOCKERFILE = FOLDER / "Dockerfile"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
OURS = [service for service in COMPOSE["services"].values() if service["image"].startswith("doorstep:")]


def lint(dockerfile: Path) -> str:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, dockerfile], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    return done.stdout + done.stderr


def test_the_linter_has_no_complaints() -> None:
    assert lint(DOCKERFILE) == ""


def test_the_control_a_bad_step_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.read_text().replace("USER 10001", "RUN cd /tmp"))
    assert "DL3003" in lint(tmp_path / "Dockerfile")


def test_the_image_runs_as_a_user_without_privileges_and_checks_its_health() -> None:
    lines = DOCKERFILE.read_text().rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d*$", lines, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*/readyz", lines, re.MULTILINE)
    assert '\nENTRYPOINT ["/opt/doorstep/bin/doorstep"]\nCMD ["serve"]\n' in lines, "a signal reaches the program"


def test_only_settings_that_exist_are_set() -> None:
    named = set(re.findall(r"\bDOORSTEP_\w+", DOCKERFILE.read_text() + (FOLDER / "compose.yaml").read_text()))
    assert named
    assert named - {row.variable for row in setting_rows()} == set()


@pytest.mark.parametrize("service", OURS, ids=lambda service: " ".join(service.get("command", ["serve"])))
def test_our_services_cannot_change_their_file_system(service: dict[str, Any]) -> None:
    assert service["image"] == f"doorstep:{__version__}"
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_every_file_and_name_that_the_compose_file_uses_is_there() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume
        assert {config["source"] for config in service.get("configs", [])} <= COMPOSE["configs"].keys()
        assert set(service.get("depends_on", ())) <= COMPOSE["services"].keys()


def test_prometheus_scrapes_the_server_as_in_its_own_example() -> None:
    here = yaml.safe_load(COMPOSE["configs"]["scrape"]["content"])
    example = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (job,) = example["scrape_configs"]
    job["static_configs"] = [{"targets": ["server:8080"]}]
    assert here == example
