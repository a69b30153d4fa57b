"""The commands of the README, run as they stand there."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.program import ADMIN_KEY, clean_environment, free_port, serving, wait_for

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(heading: str, language: str) -> list[str]:
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def test_the_quickstart_works_as_written(tmp_path: Path) -> None:
    start, receive, *steps = blocks("Quickstart", "sh")
    setting, command = shlex.split(start)[0], shlex.split(start)[1:]
    assert command == ["make", "run"]
    port = str(free_port())
    with serving(tmp_path, environment=dict([setting.split("=")])) as program:
        here = (("http://127.0.0.1:8080", program.url), ("the admin key that was printed", ADMIN_KEY), ("9000", port))
        receiver = subprocess.Popen(["/bin/sh", "-c", "exec " + replaced(receive, here)], stdout=subprocess.PIPE)
        try:
            assert receiver.stdout is not None
            wait_for(lambda: listens(int(port)))
            *create_and_send, look = (replaced(step, here) for step in steps)
            script = "\n".join(["set -eu", *create_and_send, "sleep 1", look])
            shown = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=30, check=True)
            assert receiver.stdout.readline() == b'{"order": 42}\n'
        finally:
            receiver.kill()
            receiver.wait()
    assert '"secret":"whsec_' in shown.stdout
    assert shown.stdout.count('"status":"delivered"') == 2


def test_the_example_of_the_library_works_as_written(tmp_path: Path) -> None:
    (example,) = blocks("As a library", "python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == """hello b'{"name":"Ada"}'\n""", done.stderr


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_link_to_a_page_of_this_repository_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", (ROOT / page).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_target_that_is_promised_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("install", "run", "test", "check", "bench", "torture", "examples", "demo"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for target in re.findall(r"`make (\w+)`", README + (ROOT / "CONTRIBUTING.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def replaced(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
