"""What each command imports: help, completion and API calls are fast because they do not import the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port

HEAVY = (
    "alembic",
    "asyncpg",
    "doorstep.app",
    "fastapi",
    "opentelemetry",
    "prometheus_client",
    "pycurl",
    "rich.console",
    "sqlalchemy",
    "uvicorn",
)


def loaded_by(program: str, folder: Path) -> set[str]:
    """Which of the heavy libraries a program has loaded by the time it ends."""
    said = f"{program}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", said], cwd=folder, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_loads_only_what_draws_it_and_no_command(tmp_path: Path) -> None:
    """Bounds the CPU cost of help in a way that does not depend on how busy the machine is."""
    program = "import sys\nsys.argv = ['doorstep', '--help']\nfrom doorstep.cli.main import run\n"
    program += "try:\n    run()\nexcept SystemExit:\n    pass\n"
    program += "print([name for name in sys.modules if name.startswith('doorstep.')], 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['doorstep.cli', 'doorstep.cli.main'] False"


def test_a_worker_loads_neither_the_api_nor_the_console(tmp_path: Path) -> None:
    assert not loaded_by("import doorstep.cli.run", tmp_path) & {"fastapi", "uvicorn"}


@pytest.mark.parametrize("arguments", [("serve", "--help"), ("doctor", "--help"), ("send", "--help")])
def test_the_help_of_a_command_does_not_load_the_engine(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program = f"import sys\nsys.argv = ['doorstep', *{arguments!r}]\nfrom doorstep.cli.main import run\n"
    program += "try:\n    run()\nexcept SystemExit:\n    pass"
    assert loaded_by(program, tmp_path) <= {"rich.console"}


def test_the_command_line_itself_loads_neither_the_engine_nor_what_draws_tables(tmp_path: Path) -> None:
    assert loaded_by("import doorstep.cli.main", tmp_path) == set()


def test_the_engine_loads_neither_the_metrics_library_nor_opentelemetry(tmp_path: Path) -> None:
    loaded = loaded_by("import doorstep.app", tmp_path)
    assert "doorstep.app" in loaded
    assert not loaded & {"opentelemetry", "prometheus_client"}


@pytest.mark.parametrize(("starts", "loads"), [(1, True), (2, False)])
def test_only_a_start_that_has_something_to_migrate_loads_alembic(tmp_path: Path, starts: int, loads: bool) -> None:
    opening = "import asyncio\nfrom doorstep.stores.open import store_from_url\n"
    opening += "asyncio.run(store_from_url('sqlite:///doorstep.db').migrate())"
    loaded = [loaded_by(opening, tmp_path) for _ in range(starts)][-1]
    assert ("alembic" in loaded) == loads
    assert "sqlalchemy" in loaded


def test_a_store_in_memory_is_opened_without_alembic(tmp_path: Path) -> None:
    opening = "import asyncio\nfrom doorstep.stores.open import store_from_url\n"
    opening += "store = store_from_url('memory://')\nasyncio.run(store.migrate())\nasyncio.run(store.open())"
    assert "alembic" not in loaded_by(opening, tmp_path)


LISTENS_FIRST = """
import os, socket, sys
from doorstep.cli.main import run

class Probe:
    def find_spec(self, name, *_):
        if name == "doorstep.cli.serve":
            socket.create_connection(("127.0.0.1", PORT)).close()
            print("listens", [name for name in HEAVY if name in sys.modules], flush=True)
            os._exit(0)

sys.meta_path.insert(0, Probe())
sys.argv = ["doorstep", "serve", "--port", "PORT"]
run()
"""


def test_the_server_listens_before_it_loads_what_it_needs_to_answer(tmp_path: Path) -> None:
    """So the clients of a server that was killed and restarted wait, instead of being refused."""
    program = LISTENS_FIRST.replace("PORT", str(free_port())).replace("HEAVY", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["listens []"], done.stderr
