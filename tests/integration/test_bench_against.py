"""`make bench-against` builds two revisions and reports which one uses more CPU, on a repository made for the test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.against.__main__ import main
from bench.against.revisions import RefError, build
from bench.against.server import process_cpu

_BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
_MAKEFILE = "install:\n\tmkdir -p .venv/bin\n\tinstall doorstep .venv/bin/\n\techo built >> ../builds\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits of a program named doorstep; the second, HEAD, uses three times the CPU of the first."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "Makefile").write_text(_MAKEFILE)
    (tmp_path / ".gitignore").write_text("build/\n")
    for seconds in (0.04, 0.12):
        (tmp_path / "doorstep").write_text(f"#!{sys.executable} -IS\n" + _BURN.format(seconds=seconds))
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", f"Burn {seconds} s")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True)


def test_a_revision_that_uses_more_cpu_is_called_slower(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["HEAD~1", "--only", "start-help", "--pairs", "6"], repository) == 0
    assert "\nSLOWER: start-help\n" in capsys.readouterr().out


def test_a_measurement_that_fails_is_reported_and_fails_the_run(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "doorstep").write_text("#!/bin/sh\necho out of order\nexit 3\n")
    git(repository, "commit", "--quiet", "--all", "--message", "Break it")
    assert main(["HEAD~1", "--only", "start-serve"], repository) == 1
    out = capsys.readouterr().out
    assert "doorstep serve did not start" in out
    assert "BROKEN: start-serve did not finish" in out


def test_a_revision_is_built_once_and_again_if_its_build_was_interrupted(repository: Path) -> None:
    revision = build("HEAD", repository)
    assert build("HEAD", repository) == revision
    builds = repository / "build" / "against" / "builds"
    assert builds.read_text().splitlines() == ["built"]
    (revision.program.parents[2] / ".built").unlink()
    build("HEAD", repository)
    assert builds.read_text().splitlines() == ["built", "built"]


def test_a_ref_that_names_no_commit_is_refused(repository: Path) -> None:
    with pytest.raises(RefError, match="'nowhere' names no commit"):
        build("nowhere", repository)


def test_the_cpu_of_children_counts_before_and_after_they_have_ended() -> None:
    child = _BURN.format(seconds=0.3)
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])\nprint('done', flush=True)\n"
    waits = f"import sys\n{child}print('done', flush=True)\nsys.stdin.read()\n"
    script += f"subprocess.run([sys.executable, '-c', {waits!r}])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process_cpu(process.pid) >= 0.29  # /proc counts CPU time in steps of 10 ms
        process.stdout.readline()
        assert process_cpu(process.pid) >= 0.59
        process.communicate()
