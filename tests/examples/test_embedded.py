"""The programs of docs/how-to/embedding.md: what they do, and what they print when a handler fails."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import HOW_TO, ROOT, fences
from tests.docs.sample import Samples
from tests.integration.embedding import Started, rows, started, states
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.program import wait_for

PAGE = HOW_TO / "embedding.md"
PROGRAMS = ["fastapi_app", "flask_app", "script"]
LINES_MAX = 39
TEXT_LOG = {"DOORSTEP_LOG_FORMAT": "text", "DOORSTEP_LOG_LEVEL": "warning"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in PROGRAMS:
        shutil.copy(ROOT / "examples" / f"{name}.py", tmp_path)
    return tmp_path


def test_the_page_shows_each_program_and_each_has_less_than_forty_lines() -> None:
    codes = [(ROOT / "examples" / f"{name}.py").read_text() for name in PROGRAMS]
    assert fences(PAGE, "python") == codes
    assert all(len(code.splitlines()) <= LINES_MAX for code in codes)


def test_a_fastapi_application_answers_and_delivers_and_shows_under_uvicorn_why_a_handler_failed(folder: Path) -> None:
    port = free_port()
    with started(folder, "-m", "uvicorn", "fastapi_app:app", "--port", str(port)) as program:
        wait_for(lambda: post(port, {"item": "tea", "packets": 2}) == 201, lambda: program.said)
        assert post(port, {"item": "tea"}) == 422
        assert post(port, {"item": "cocoa", "packets": 1}) == 201
        wait_for(lambda: settled(folder) == ["dead", "delivered"], lambda: program.said)
        assert "packing 100 grams of tea\n" in program.said
        assert shown(0, program)()


def test_a_flask_application_answers_and_the_worker_beside_it_delivers(folder: Path) -> None:
    port = free_port()
    worker = ("-m", "doorstep", "worker", "--app", "flask_app:doorstep")
    with (
        started(folder, *worker, environment=TEXT_LOG) as delivering,
        started(folder, "-m", "flask", "--app", "flask_app", "run", "--port", str(port)) as web,
    ):
        wait_for(lambda: post(port, {"item": "tea", "packets": 2}) == 201, lambda: web.said)
        assert post(port, {"item": "tea", "packets": 12}) == 201
        wait_for(lambda: settled(folder) == ["dead", "delivered"], lambda: web.said)
        wait_for(shown(1, delivering), lambda: delivering.said)
        assert "packing 2 packets of tea\n" in delivering.said


def test_a_script_delivers_what_it_sends_and_shows_why_a_handler_failed(folder: Path) -> None:
    with started(folder, "script.py", "tea", "2", environment=TEXT_LOG) as program:
        wait_for(lambda: "packing 100 grams of tea\n" in program.said, lambda: program.said)
        assert program.stop() == 0
    with started(folder, "script.py", "cocoa", "2", environment=TEXT_LOG) as program:
        wait_for(lambda: settled(folder) == ["dead", "delivered"], lambda: program.said)
        wait_for(shown(2, program), lambda: program.said)
    assert rows(folder, "SELECT count(*) FROM doorstep_outbox", "shop.db") == [(0,)]


def settled(folder: Path) -> list[str]:
    """The states of the orders' deliveries. The program's database has the name that the page gives it."""
    return sorted(states(folder, "shop.db"))


def shown(sample: int, program: Started) -> Callable[[], bool]:
    text = fences(PAGE, "text")[sample]
    return lambda: Samples({}).matches(text, program.said, whole=False)


def post(port: int, order: dict[str, object]) -> int | None:
    """The status of the answer; None while the program does not listen, or has no tables yet."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/orders", json.dumps(order).encode())
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
