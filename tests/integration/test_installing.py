"""`make install`: what the lock files pin, and the display while they are installed."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tomllib
import venv
from itertools import combinations
from pathlib import Path
from zipfile import ZipFile

from requirements import install
from tests.docs.pages import ROOT
from tests.support.patience import PATIENCE_SECONDS

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(lock: Path) -> dict[str, set[str]]:
    """The versions of each package; more than one where they depend on the version of Python."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=;\[ ]", line)[0].lower() for line in requirements}


def test_all_lock_files_pin_the_same_versions() -> None:
    assert {lock.stem for lock in LOCKS} >= {"run", "dev", "release"}
    for one, other in combinations(LOCKS, 2):
        ours, theirs = pins(one), pins(other)
        assert [name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]] == [], (one, other)


def test_every_extra_has_a_lock_file_with_all_that_running_needs() -> None:
    run = pins(ROOT / "requirements" / "run.lock").keys()
    assert names(PROJECT["project"]["dependencies"]) <= run
    for extra, requirements in PROJECT["project"]["optional-dependencies"].items():
        lock = ROOT / "requirements" / f"{extra}.lock"
        assert names(requirements) | run <= pins(lock).keys() if lock.exists() else names(requirements) <= run, extra


def test_running_needs_no_development_packages() -> None:
    needed = names(PROJECT["project"]["dependencies"]) | names(PROJECT["project"]["optional-dependencies"]["postgres"])
    assert (names(PROJECT["dependency-groups"]["dev"]) - needed) & pins(
        ROOT / "requirements" / "run.lock"
    ).keys() == set()


def test_a_lock_file_is_installed_and_the_display_names_each_phase(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    done = installing(tmp_path, "one==1.0\ntwo==2.0\n", ("one", "1.0"), ("two", "2.0"))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"(installing own\.lock: \w+\n)+installing own\.lock: done in \d+ s\n", done.stdout)
    assert {path.name for path in (tmp_path / "venv").glob("lib/*/site-packages/*-[12].0.dist-info")} == {
        "one-1.0.dist-info",
        "two-2.0.dist-info",
    }
    failed = installing(tmp_path, "three==3.0\n")
    assert failed.returncode != 0
    assert "failed in" in failed.stdout and "three==3.0" in failed.stderr, "the reason is shown"


def installing(folder: Path, lock: str, *wheels: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    (folder / "own.lock").write_text(lock)
    for name, version in wheels:
        write_wheel(folder, name, version)
    return subprocess.run(
        [next(folder.glob("venv/bin/python")), ROOT / "requirements" / "install.py", "own.lock"],
        cwd=folder,
        env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def write_wheel(folder: Path, name: str, version: str) -> None:
    """A wheel without modules."""
    with ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_grows_on_one_line() -> None:
    screen = Terminal()
    progress = install.Progress(screen, "installing run.lock", 4)
    for collected, added in ((0, 0), (2, 0), (2, 1), (2, 2)):
        progress.show(*install.phase(collected, added, 2))
    shown = screen.getvalue().split("\r\x1b[K")[1:]
    assert [line.count("█") for line in shown] == [0, 12, 18, 24]
    assert ["installing 0 s" in line for line in shown] == [False, False, True, True]
    assert "\n" not in screen.getvalue()
