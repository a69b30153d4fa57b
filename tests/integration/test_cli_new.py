"""`doorstep new`: the program of a profile in a folder of one's own, also from an installed wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from doorstep.cli.new import create, profiles
from doorstep.errors import ConfigError
from tests.docs.pages import ROOT
from tests.support.http_calls import call
from tests.support.ports import free_port
from tests.support.program import clean_environment, wait_for

FIRST: dict[str, tuple[str, str, str, Mapping[str, object]]] = {
    "integrations": (
        "it-manager",
        "/v1/events",
        "/api/integrations/logs",
        {"event_type": "stock.counted", "payload": {"n": 1}},
    ),
    "protocols": ("first-commands", "/protocols", "/protocols", {"text": "Open the valve."}),
    "sms": ("first-commands", "/batches", "/batches", {"messages": [{"to": "+15550100", "text": "At nine."}]}),
    "triggers": ("ada", "/v1/events", "/v1/inbox", {"event_type": "form.sent", "payload": {"n": 1}}),
    "webhooks": (
        "first-commands",
        "/v1/events",
        "/webhook-deliveries",
        {"event_type": "order.paid", "payload": {"n": 1}},
    ),
}
"""The key, the route, the list and the body of the first commands of each profile."""
_ID = re.compile(r'"(?:event|batch|protocol)_id":"([^"]+)"')


@contextmanager
def started(folder: Path, environment: Mapping[str, str] = {}) -> Iterator[str]:
    """Run `python .` in a folder outside the repository, and yield the URL of the server."""
    port, others = free_port(), {"COUNTERPART_PORT": "0", "DOORSTEP_LOG_FORMAT": "json"}
    given = clean_environment() | others | {"DOORSTEP_PORT": str(port)} | environment
    with open(folder / "out.log", "wb") as out:
        program = subprocess.Popen([sys.executable, "."], cwd=folder, env=given, stdout=out, stderr=out)
    try:
        said = folder / "out.log"
        wait_for(lambda: "and to repair it" in said.read_text(), said.read_text)
        yield f"http://127.0.0.1:{port}"
    finally:
        program.terminate()
        assert program.wait(30) == 0


def sees_its_first_event(profile: str, folder: Path, url: str) -> None:
    name, path, listed_at, body = FIRST[profile]
    key = {"X-API-Key": (folder / "data" / profile / f"{name}.key").read_text()}
    sent = call(url, "POST", path, body, key)
    assert sent.status == 202, sent.body
    (sent_id,) = _ID.findall(sent.body.decode())
    wait_for(lambda: sent_id in call(url, "GET", listed_at, None, key).body.decode())


def test_each_profile_that_is_a_program_can_be_copied() -> None:
    assert set(profiles()) >= set(FIRST)


@pytest.mark.parametrize("profile", sorted(FIRST))
def test_a_copy_starts_and_takes_its_first_event(profile: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    done = subprocess.run(
        [sys.executable, "-m", "doorstep", "new", "mine", "--profile", profile],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cd mine && python ." in done.stdout
    assert not [path for path in folder.glob("*.py") if "examples." in path.read_text()]
    others = [name for name in FIRST if name != profile]
    assert not [path for path in folder.glob("*.py") for name in others if f"python -m {name}" in path.read_text()]
    with started(folder) as url:
        sees_its_first_event(profile, folder, url)
    with started(folder) as url:
        sees_its_first_event(profile, folder, url)


def test_an_unknown_profile_and_a_folder_in_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="known are .*triggers"):
        create("nonsense", tmp_path / "mine")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match="not an empty folder"):
        create("triggers", tmp_path)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    (built,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "installed", built], check=True)
    return folder / "installed"


@pytest.mark.full
@pytest.mark.parametrize("profile", sorted(FIRST))
def test_each_profile_of_an_installed_wheel_can_be_copied_and_started(
    profile: str, wheel: Path, tmp_path: Path
) -> None:
    # The dependencies are those of the tests; Doorstep itself is that of the wheel.
    environment = {"PYTHONPATH": os.pathsep.join([str(wheel), sysconfig.get_paths()["purelib"]])}
    where = [sys.executable, "-c", "import doorstep; print(doorstep.__file__)"]
    found = subprocess.check_output(where, cwd=tmp_path, env=clean_environment() | environment, text=True)
    assert found.startswith(str(wheel))
    command = [sys.executable, "-m", "doorstep", "new", "mine", "--profile", profile]
    subprocess.run(command, cwd=tmp_path, env=clean_environment() | environment, check=True, capture_output=True)
    with started(tmp_path / "mine", environment) as url:
        sees_its_first_event(profile, tmp_path / "mine", url)
