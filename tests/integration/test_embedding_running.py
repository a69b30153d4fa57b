"""Delivering inside and beside programs of every kind: run(), FastAPI, Flask, Django, `doorstep worker --app`."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.integration.embedding import event_types, run, started, states, write
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.program import wait_for

DS = """
import os, time
from doorstep import Doorstep
ds = Doorstep("sqlite:///app.db")

@ds.handler("order.*")
def ship(event):
    with open("shipped", "a") as file:
        file.write(f"{event.json()['order']}\\n")
"""
WORKER = ("-m", "doorstep", "worker", "--app", "shop:ds")


def shipped(folder: Path) -> list[str]:
    path = folder / "shipped"
    return path.read_text().split() if path.exists() else []


def get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as response:
        content: bytes = response.read()
    return content


def answers(port: int, path: str) -> bytes | None:
    try:
        return get(port, path)
    except OSError:
        return None


# -- without a web program -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_delivers_until_it_is_told_to_stop_and_finishes_what_is_under_way(tmp_path: Path, number: int) -> None:
    write(
        tmp_path,
        "shop",
        DS
        + """
@ds.handler("slow")
def slow(event):
    open("begun", "w").close()
    time.sleep(1)

if __name__ == "__main__":
    ds.run()
""",
    )
    run(tmp_path, "-c", "import shop; shop.ds.send_sync('order.paid', {'order': 1}); shop.ds.send_sync('slow', 1)")
    with started(tmp_path, "shop.py") as program:
        wait_for(lambda: shipped(tmp_path) and (tmp_path / "begun").exists(), lambda: program.said)
        assert program.stop(number) == 0, program.said
    assert shipped(tmp_path) == ["1"] and states(tmp_path) == ["delivered", "delivered"]
    assert '"event":"delivery_transition"' in program.said  # the log of a worker


# -- inside and beside web programs ----------------------------------------------------------------------------

FASTAPI = (
    DS
    + """
import uvicorn
from fastapi import FastAPI

app = FastAPI(lifespan=ds.lifespan)

@app.get("/async")
async def asynchronous():
    return (await ds.send("order.paid", {"order": "async"})).event_id

@app.get("/plain")
def plain():
    return ds.send_sync("order.paid", {"order": "plain"}).event_id

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ["PORT"]))
"""
)


def test_run_leaves_the_logging_of_the_program_as_it_is_and_may_be_called_again(tmp_path: Path) -> None:
    code = """
import logging, signal, sys
from doorstep.telemetry.logs import LogWriter
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="mine: %(message)s")
before = logging.getLogger().handlers[:]

@ds.handler("said")
def say(event):
    logging.getLogger("shop").info(event.json())
    os.kill(os.getpid(), signal.SIGTERM)

for word in ("first", "second"):
    ds.send_sync("said", word)
    ds.run()
logs = [one for one in ds.telemetry._subscribers if isinstance(one, LogWriter)]
print(logging.getLogger().handlers == before, logging.getLogger().level == logging.INFO, logs)
"""
    lines = run(tmp_path, "-c", DS + code).splitlines()
    assert {"mine: first", "mine: second"} <= set(lines) and lines[-1] == "True True []"


def test_a_fastapi_program_sends_from_both_kinds_of_views_and_delivers_while_it_lives(tmp_path: Path) -> None:
    write(tmp_path, "shop", FASTAPI)
    port = free_port()
    with started(tmp_path, "shop.py", environment={"PORT": str(port)}) as program:
        wait_for(lambda: answers(port, "/async"), lambda: program.said)
        get(port, "/plain")
        wait_for(lambda: set(shipped(tmp_path)) == {"async", "plain"}, lambda: program.said)
        program.stop()
    assert "Application shutdown complete" in program.said and set(states(tmp_path)) == {"delivered"}


FLASK = (
    DS
    + """
from flask import Flask

app = Flask(__name__)

@app.get("/pay")
def pay():
    return str(ds.send_sync("order.paid", {"order": "flask"}).event_id)

if __name__ == "__main__":
    app.run(port=int(os.environ["PORT"]), threaded=True)
"""
)
DJANGO = (
    DS
    + """
import sys
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse
from django.urls import path

settings.configure(DEBUG=False, ALLOWED_HOSTS=["*"], ROOT_URLCONF="shop", SECRET_KEY="for tests only")

def pay(request):
    return HttpResponse(str(ds.send_sync("order.paid", {"order": "django"}).event_id))

async def pay_async(request):
    return HttpResponse(str((await ds.send("order.paid", {"order": "async"})).event_id))

urlpatterns = [path("pay", pay), path("async", pay_async)]

if __name__ == "__main__":
    sys.modules["shop"] = sys.modules["__main__"]
    execute_from_command_line(["shop", "runserver", "--noreload", os.environ["PORT"]])
"""
)


@pytest.mark.parametrize(
    ("program", "paths", "orders"),
    [(FLASK, ["/pay"], {"flask"}), (DJANGO, ["/pay", "/async", "/async"], {"django", "async"})],
    ids=["flask", "django"],
)
def test_a_web_program_without_an_event_loop_sends_from_its_views_and_a_worker_beside_it_delivers(
    tmp_path: Path, program: str, paths: list[str], orders: set[str]
) -> None:
    write(tmp_path, "shop", program)
    port = free_port()
    with (
        started(tmp_path, "shop.py", environment={"PORT": str(port)}) as web,
        started(tmp_path, *WORKER) as worker,
    ):
        wait_for(lambda: answers(port, paths[0]), lambda: web.said)
        for path in paths[1:]:
            get(port, path)
        wait_for(lambda: len(shipped(tmp_path)) >= len(paths), lambda: web.said)
        assert worker.stop() == 0, worker.said
    assert set(shipped(tmp_path)) == orders
    assert set(states(tmp_path)) == {"delivered"} and len(event_types(tmp_path)) == len(paths)


def test_serve_with_a_program_of_your_own_has_its_handlers_and_so_have_its_workers(tmp_path: Path) -> None:
    write(
        tmp_path,
        "shop",
        DS
        + "\n@ds.handler('who')\ndef who(event):\n    open(f'pid-{os.getpid()}', 'w').close()\n    time.sleep(0.05)\n",
    )
    port = free_port()
    serve = ("-m", "doorstep", "serve", "--app", "shop:ds", "--port", str(port), "--workers", "1")
    with started(tmp_path, *serve, environment={"DOORSTEP_ADMIN_KEY": "an-admin-key"}) as program:
        wait_for(lambda: answers(port, "/readyz"), lambda: program.said)

        def send() -> bool:
            events = [{"event_type": "who", "payload": {}} for _ in range(50)]
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/events/batch",
                json.dumps({"events": events}).encode(),
                {"X-API-Key": "an-admin-key", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
                assert response.status == 202
            return len(list(tmp_path.glob("pid-*"))) == 2

        wait_for(send, lambda: program.said)
        assert program.stop() == 0, program.said


# -- error messages for faulty programs ----------------------------------------------------------------------------

BROKEN = {
    "nosuch:ds": "there is no module 'nosuch' in .* or on Python's path; run the command in the folder that contains it",
    "shop:nosuch": "module shop has no 'nosuch'; it has ds",
    "shop": "--app must be module:name, got 'shop'; for example --app shop.events:doorstep",
    "typo:ds": r"NameError: name 'Dorstep' is not defined; typo.py, line 2: ds = Dorstep\(\)",
    "grammar:ds": r"SyntaxError: .*grammar.py, line 1",
    "needs:ds": r"ModuleNotFoundError: No module named 'nosuch_library'; needs.py, line 1: import nosuch_library",
    "leaves:ds": r"SystemExit: 3; leaves.py, line 2: sys.exit\(3\)",
    "shop:ship": r"--app shop:ship cannot be loaded: TypeError: ship\(\) missing 1 required positional argument",
    "shop:os": "--app must name a Doorstep, got module for shop:os",
}


@pytest.mark.parametrize("app", BROKEN)
def test_a_program_that_cannot_be_loaded_is_told_in_one_sentence_that_shows_where(tmp_path: Path, app: str) -> None:
    write(tmp_path, "shop", DS)
    write(tmp_path, "typo", "from doorstep import Doorstep\nds = Dorstep()\n")
    write(tmp_path, "grammar", "ds = = 3\n")
    write(tmp_path, "needs", "import nosuch_library\n")
    write(tmp_path, "leaves", "import sys\nsys.exit(3)\n")
    with started(tmp_path, "-m", "doorstep", "worker", "--app", app) as program:
        assert program.process.wait(PATIENCE_SECONDS) == 2, program.said
    assert "Traceback" not in program.said
    assert re.search(BROKEN[app], program.said), program.said
