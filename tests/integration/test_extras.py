"""Small installations: each part needs only its own packages, and a command that needs more says which extra."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest

from release.__main__ import build_project, sources
from tests.docs.pages import ROOT
from tests.support.program import ADMIN_KEY, Program, clean_environment

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_HIDING = """
import sys
from importlib.machinery import PathFinder
class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in {hidden!r}
        return None if hidden else PathFinder.find_spec(name, path, target)
sys.meta_path = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
sys.argv = ["doorstep", *{arguments!r}]
"""


def distributions(extras: tuple[str, ...]) -> set[str]:
    """The packages that only these extras need, by their normalized names."""
    named = [line for extra in extras for line in _PROJECT["optional-dependencies"][extra]]
    return {re.split(r"[<>=;\[ ]", line)[0].lower() for line in named}


def modules(extras: tuple[str, ...]) -> set[str]:
    """The top-level modules of these packages."""
    wanted = distributions(extras)
    return {module for module, names in packages_distributions().items() if {name.lower() for name in names} & wanted}


def run(code: str, folder: Path, *arguments: str, without: set[str]) -> subprocess.CompletedProcess[str]:
    program = _HIDING.format(hidden=without, arguments=arguments) + code
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


_CLI = "from doorstep.cli.main import run\nrun()"
_LIBRARY = """
import os
import doorstep.cli.run, doorstep.client, doorstep.receiver, doorstep.testing
from doorstep import Doorstep

app = Doorstep("sqlite:///app.db")

@app.handler("order.paid")
def ship(event):
    print("shipping order", event.json()["order"], flush=True)
    os._exit(0)

app.send_sync("order.paid", {"order": 42})
app.run()
"""


def test_the_library_and_its_handlers_work_without_any_extra(tmp_path: Path) -> None:
    done = run(_LIBRARY, tmp_path, without=modules(("server", "postgres", "otel", "apprise")))
    assert done.stdout.splitlines()[-1:] == ["shipping order 42"], done.stderr


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_command_that_needs_the_server_names_its_extra_in_one_sentence(command: str, tmp_path: Path) -> None:
    done = run(_CLI, tmp_path, command, without=modules(("server",)))
    assert done.returncode == 2
    assert re.fullmatch(r"doorstep: this command needs the extra `server`, .*\[server\]'\n", done.stderr)


def test_postgresql_names_its_extra_in_one_sentence(tmp_path: Path) -> None:
    done = run(_CLI, tmp_path, "migrate", "--database", "postgresql://localhost/none", without=modules(("postgres",)))
    assert done.returncode == 2
    assert re.fullmatch(r"doorstep: PostgreSQL needs the extra `postgres`, .*\[postgres\]'\n", done.stderr)


# -- the client alone --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("client")
    with sources(uncommitted=True) as files:
        (wheel,) = (file for file in build_project(files / "clients" / "python") if file.suffix == ".whl")
        ZipFile(wheel).extractall(folder)
    yield folder


def test_the_client_alone_sends_to_a_server(client: Path, served: Program, tmp_path: Path) -> None:
    code = f"""
sys.path.insert(0, {str(client)!r})
from doorstep_client import Client, NotFound, __name__ as name
with Client({served.url!r}, {ADMIN_KEY!r}) as client:
    receipt = client.send("order.alone", {{"order": 42}})
    print(client.events.read(receipt.event_id).payload)
    try:
        client.endpoints.read("01890a5d-ac96-774b-bcce-b302099a8057")
    except NotFound:
        print("not found")
print([name for name in sys.modules if name.split(".")[0] == "doorstep"])
"""
    needs = {
        "httpx2",
        "httpcore2",
        "h11",
        "anyio",
        "idna",
        "truststore",
        "msgspec",
        "typing_extensions",
        "doorstep_client",
    }
    others = {name for name in packages_distributions() if name not in needs and not name.startswith("_")}
    done = run(code, tmp_path, without=(others | {"doorstep"}) - set(sys.stdlib_module_names))
    assert done.stdout.splitlines() == ["{'order': 42}", "not found", "[]"], done.stderr


def test_the_client_alone_contains_everything_of_the_original(client: Path) -> None:
    original = ROOT / "src" / "doorstep"
    for folder, copy in (("client", ""), ("schemas", "schemas")):
        names = {file.name for file in (original / folder).glob("*.py")}
        assert names <= {file.name for file in (client / "doorstep_client" / copy).glob("*.py")}
    text = "".join(file.read_text() for file in client.rglob("*.py"))
    assert re.findall(r"^\s*(?:from|import) doorstep\b", text, re.MULTILINE) == []
    assert (
        "Version: " + re.findall(r'__version__ = "(.+)"', text)[0]
        in next(client.glob("*.dist-info/METADATA")).read_text()
    )
