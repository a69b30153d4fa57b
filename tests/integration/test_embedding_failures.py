"""Failures in programs that embed Doorstep reach the standard library's logging with their tracebacks, once. (Under
uvicorn: see tests/examples/test_embedded.py.)"""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.embedding import run, write

SHOP = """
import asyncio, logging, os, signal, sys
from doorstep import Doorstep, Permanent
ds = Doorstep("sqlite:///app.db")
over = []

@ds.handler("order.paid", policy=[0.01])
def ship(event):
    check(event.json())

def check(order):
    raise KeyError("weight of " + order["item"])

@ds.handler("order.void")
async def refund(event):
    raise Permanent("NO_CARD", "There is no card.")

@ds.on_dead_letter
def notify(letter):
    over.append(letter.endpoint)
    if len(over) == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    raise LookupError(letter.reason)

item = "c4n4" + "ry"
ds.send_sync("order.paid", {"item": item})
ds.send_sync("order.void", {})
sys.stderr = sys.stdout
"""
ASYNCIO = """
async def deliver():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with ds:
        await stop.wait()
asyncio.run(deliver())
"""
RUN = """
logging.basicConfig(stream=sys.stdout, format="mine: %(message)s")
ds.run()
"""
LINES = [
    "    check(event.json())",
    '    raise KeyError("weight of " + order["item"])',
    "KeyError: 'weight of [payload]'",
]


def test_without_any_configured_logging_failures_are_on_standard_error_with_their_tracebacks(tmp_path: Path) -> None:
    write(tmp_path, "shop", SHOP + ASYNCIO)
    said = run(tmp_path, "shop.py")
    lines = said.splitlines()
    for started, reason in (
        ("ship: attempt 1 failed, retry at 2", "HANDLER_ERROR: The handler raised KeyError."),
        ("ship: attempt 2 failed, it is now a dead letter (event ", "HANDLER_ERROR: The handler raised KeyError."),
        ("refund: attempt 1 failed, it is now a dead letter (event ", "NO_CARD: There is no card."),
    ):
        (line,) = [line for line in lines if line.startswith(started)]
        assert line.endswith(reason)
        assert lines[lines.index(line) + 1] == "Traceback (most recent call last):"
    assert all(lines.count(line) == 2 for line in LINES)
    callbacks = [line for line in lines if line.startswith("the dead-letter callback notify failed: LookupError")]
    assert len(callbacks) == 2 and lines.count("    raise LookupError(letter.reason)") == 2
    assert "c4n4ry" not in said


def test_run_has_them_in_its_own_log_and_a_program_with_configured_logging_not_a_second_time(tmp_path: Path) -> None:
    write(tmp_path, "shop", SHOP + RUN)
    said = run(tmp_path, "shop.py").splitlines()
    logged = [json.loads(line) for line in said if line.startswith("{")]
    failures = [line for line in logged if line["event"] == "delivery_failure"]
    assert len(failures) == 3 and all(line["traceback"].startswith("Traceback") for line in failures)
    assert sum(line["traceback"].splitlines()[-1] == LINES[-1] for line in failures) == 2
    callbacks = [line for line in logged if "callback notify failed" in line.get("message", "")]
    assert len(callbacks) == 2 and all("raise LookupError" in line["traceback"] for line in callbacks)
    assert not [line for line in said if line.startswith("mine:")]
