"""Isolated handlers in whole programs: what happens to their processes when the worker stops or is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.embedding import Started, rows, run, started, states, write
from tests.support.program import wait_for

APP = """
import os, re, time
from doorstep import Doorstep
ds = Doorstep("sqlite:///app.db")

@ds.handler("note", isolated=True)
def note(event):
    print("noted by", os.getpid(), flush=True)
    return {"pid": os.getpid(), "parent": os.getppid()}

@ds.handler("slow", isolated=True)
def slow(event):
    open(f"slow-{os.getpid()}", "w").close()
    time.sleep(event.json())

@ds.handler("greedy", isolated=True)
def greedy(event):
    '''Holds the interpreter lock for good: no other thread of its process ever runs again.'''
    open(f"slow-{os.getpid()}", "w").close()
    re.match("(a+)+$", "a" * 64 + "b")

@ds.handler("shared")
def shared(event):
    return {"pid": os.getpid()}

if __name__ == "__main__":
    ds.run()
"""
WORKER = ("-m", "doorstep", "worker", "--app", "app:ds")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "app", APP)
    return tmp_path


def send(folder: Path, event_type: str, payload: object = 0) -> None:
    run(folder, "-c", f"import app; app.ds.send_sync({event_type!r}, {payload!r})")


def slow_process(folder: Path) -> psutil.Process | None:
    names = [path.name for path in folder.glob("slow-*")]
    return psutil.Process(int(names[0].removeprefix("slow-"))) if names else None


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def body(folder: Path) -> str:
    ((content,),) = rows(folder, "SELECT response_body FROM doorstep_attempts")
    return bytes(content).decode()


@pytest.mark.parametrize("command", [WORKER, ("app.py",), ("-m", "app")], ids=["--app", "script", "-m"])
def test_an_isolated_handler_runs_in_a_process_of_the_worker_and_what_it_prints_is_seen(
    folder: Path, command: tuple[str, ...]
) -> None:
    send(folder, "note")
    with started(folder, *command) as program:
        wait_for(lambda: states(folder) == ["delivered"], lambda: program.said)
        assert f'"parent":{program.process.pid}' in body(folder)
        assert "noted by" in program.said
        processes = psutil.Process(program.process.pid).children()
        assert program.stop() == 0, program.said
        assert all(map(gone, processes)) and len(processes) == 1


def test_with_isolate_every_handler_has_a_process_of_its_own(folder: Path) -> None:
    send(folder, "shared")
    with started(folder, *WORKER, "--isolate") as program:
        wait_for(lambda: states(folder) == ["delivered"], lambda: program.said)
        assert f'"pid":{program.process.pid}' not in body(folder)
        assert program.stop() == 0
    send(folder, "shared")
    with started(folder, *WORKER) as program:  # the control: without isolation, the worker's process runs it
        wait_for(lambda: states(folder) == ["delivered"] * 2, lambda: program.said)
        bodies = rows(folder, "SELECT response_body FROM doorstep_attempts ORDER BY delivery_id")
        assert bytes(bodies[1][0]).decode() == f'{{"pid":{program.process.pid}}}'


def under_way(folder: Path, program: Started) -> psutil.Process:
    return wait_for(lambda: slow_process(folder), lambda: program.said)


@pytest.mark.parametrize("deed", ["slow", "greedy"])
def test_a_killed_worker_takes_the_processes_of_its_handlers_along_even_from_the_middle_of_an_attempt(
    folder: Path, deed: str
) -> None:
    send(folder, deed, 60)
    with started(folder, *WORKER) as program:
        process = under_way(folder, program)
        program.process.kill()
        wait_for(lambda: gone(process), lambda: "it lives on")


def test_a_worker_that_is_told_to_stop_lets_an_isolated_attempt_finish_even_if_the_signal_reached_its_process_too(
    folder: Path,
) -> None:
    """Ctrl-C in a terminal, or a service manager, signals every process of the program."""
    send(folder, "slow", 1.5)
    with started(folder, *WORKER) as program:
        process = under_way(folder, program)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
        assert program.stop() == 0, program.said
    assert states(folder) == ["delivered"]


def test_an_attempt_that_outlasts_the_grace_is_cut_off_and_is_due_again(folder: Path) -> None:
    send(folder, "slow", 60)
    with started(folder, *WORKER, environment={"DOORSTEP_GRACE_SECONDS": "0.2"}) as program:
        process = under_way(folder, program)
        assert program.stop() == 0, program.said
        assert gone(process)
    assert states(folder) == ["pending"]
    assert rows(folder, "SELECT code FROM doorstep_attempts") == [("WORKER_LOST",)]
