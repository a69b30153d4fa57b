"""The TypeScript client: its types match the API, and its own tests pass against a running program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from doorstep import __version__
from tests.docs.pages import ROOT
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import ADMIN_KEY, Program

HERE = ROOT / "clients" / "typescript"
NPM = shutil.which("npm")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=HERE,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )


def npm(*arguments: str, **environment: str) -> None:
    done = run(NPM or "npm", *arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed() -> None:
    """Install the packages of package-lock.json. Outside CI, the tests are skipped if npm or its registry is
    unavailable."""
    if NPM is None:
        _skip("npm is not on this machine")
    lock, stamp = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if stamp.exists() and stamp.stat().st_mtime > lock.stat().st_mtime:
        return
    done = run(NPM or "npm", "ci", "--no-audit", "--no-fund")
    if done.returncode and not os.environ.get("CI"):
        _skip(f"npm could not install its packages: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr


def _skip(why: str) -> None:
    warnings.warn(f"THE TYPESCRIPT CLIENT IS NOT TESTED: {why}", stacklevel=2)
    pytest.skip(why)


def test_the_description_that_its_types_are_made_from_is_the_one_of_the_api() -> None:
    done = run(sys.executable, "generate.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("installed")
def test_its_types_are_what_is_generated_from_that_description() -> None:
    npm("run", "check-generated")


@pytest.mark.usefixtures("installed")
def test_it_compiles_and_its_tests_pass_against_the_running_program(served: Program) -> None:
    npm("run", "build")
    done = run(NPM or "npm", "test", DOORSTEP_URL=served.url, DOORSTEP_API_KEY=ADMIN_KEY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# skipped 0" in done.stdout


def test_nothing_in_its_package_names_a_place_to_download_from() -> None:
    assert '"resolved"' not in (HERE / "package-lock.json").read_text()


def test_it_has_the_version_of_the_package() -> None:
    assert json.loads((HERE / "package.json").read_text())["version"] == __version__
