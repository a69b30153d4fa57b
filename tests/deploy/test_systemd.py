"""The systemd units: systemd understands every line, and rates them as well isolated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from doorstep.config import Settings
from tests.deploy.programs import needed
from tests.docs.pages import ROOT
from tests.support.patience import PATIENCE_SECONDS

FOLDER = ROOT / "deploy" / "systemd"
SERVICES = sorted(FOLDER.glob("*.service"))
_EXPOSURE_MAX = "15"
"""1.5 of 10; systemd calls up to 2 "OK". It rates what a unit leaves open: these need the network and little else."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [needed("systemd-analyze"), "--no-pager", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def complaints(folder: Path, change: tuple[str, str] = ("", "")) -> str:
    """Verify copies of all units whose program exists on this machine."""
    for unit in FOLDER.iterdir():
        (folder / unit.name).write_text(
            unit.read_text().replace("/opt/doorstep/bin/doorstep", sys.executable).replace(*change)
        )
    done = analyze("verify", *(str(folder / unit.name) for unit in FOLDER.iterdir()))
    return done.stderr if done.returncode or str(folder) in done.stderr else ""


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    assert complaints(tmp_path) == ""


def test_the_control_a_misspelled_line_is_noticed(tmp_path: Path) -> None:
    assert "NoNewPrivilege" in complaints(tmp_path, ("NoNewPrivileges=", "NoNewPrivilege="))


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_the_services_are_isolated_from_the_rest_of_the_machine(service: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={_EXPOSURE_MAX}", str(service))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_control_a_service_without_hardening_is_rated_badly(tmp_path: Path) -> None:
    lines = [line for line in SERVICES[0].read_text().splitlines() if not line.startswith(("Protect", "Restrict"))]
    (tmp_path / "weak.service").write_text("\n".join(lines))
    done = analyze("security", "--offline=true", f"--threshold={_EXPOSURE_MAX}", str(tmp_path / "weak.service"))
    assert done.returncode != 0


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_a_service_has_time_to_stop_gracefully(service: Path) -> None:
    (seconds,) = (
        line.partition("=")[2] for line in service.read_text().splitlines() if line.startswith("TimeoutStopSec=")
    )
    assert int(seconds) >= Settings.model_fields["grace_seconds"].default + 10
