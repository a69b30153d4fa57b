"""A program started from a warm process behaves like any other; see tests/support/warm_start.py."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.warm_start import WarmProcess, run_python, start_python


def test_it_has_its_own_arguments_environment_folder_and_streams(tmp_path: Path) -> None:
    code = """
import os, sys
print(sys.argv[1:], os.environ["ONLY"], "HOME" in os.environ, os.getcwd(), sys.stdin.read())
print("no", file=sys.stderr)
"""
    done = run_python(["-c", code, "a", "b"], cwd=tmp_path, env={"ONLY": "this"}, stdin=b"said")
    assert done.returncode == 0
    assert done.stdout.decode() == f"['a', 'b'] this False {tmp_path} said\n"
    assert done.stderr == b"no\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit('why')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
        ("import os, time; os.kill(os.getpid(), 2); time.sleep(60)", -signal.SIGINT),
    ],
)
def test_its_exit_code_is_its_own(code: str, expected: int) -> None:
    assert run_python(["-c", code]).returncode == expected


def test_what_it_changes_is_seen_by_nobody_else() -> None:
    broken = "import doorstep.clock; doorstep.clock.SECOND = 0"
    assert run_python(["-c", broken]).returncode == 0
    assert run_python(["-c", "import doorstep.clock; print(doorstep.clock.SECOND)"]).stdout == b"1000000\n"


def test_it_is_killed_and_stopped_like_any_other() -> None:
    process = start_python(["-c", "print('up', flush=True); import time; time.sleep(600)"], stdout=subprocess.PIPE)
    assert isinstance(process, WarmProcess) or os.environ.get("WARM_STARTS") == "0"
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_file_is_run_with_its_folder_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import goods\nprint(__name__, goods.NAMES)\n")
    (tmp_path / "goods.py").write_text("NAMES = ['tea']\n")
    assert run_python(["shop.py"], cwd=tmp_path).stdout == b"__main__ ['tea']\n"
