"""Runs the examples of docs/how-to/clients.md and receiving.md unchanged."""

from __future__ import annotations

import runpy
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from doorstep.client import Client
from doorstep.client.verbs import Each, Group, Verb
from doorstep.transports.signature import Signer, new_secret
from tests.docs.pages import HOW_TO, fences, rows
from tests.support.program import ADMIN_KEY, Program, serving
from tests.support.receiver import Receiver
from tests.support.warm_start import run_python

PAGE = HOW_TO / "clients.md"
BLOCKING, ASYNCHRONOUS, MANY = fences(PAGE, "python")


def run(code: str, served: Program, receiver: Receiver) -> Sequence[str]:
    for old, new in (
        ("http://127.0.0.1:8080", served.url),
        ("your API key", ADMIN_KEY),
        ("http://127.0.0.1:9000/hook", receiver.url),
    ):
        code = code.replace(old, new)
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Program]:
    """A program for this test alone: its endpoint subscribes to every order, so it would also get those of other
    tests."""
    with serving(tmp_path) as program:
        yield program


def test_the_examples_of_the_client_work_as_written(own: Program, receiver: Receiver) -> None:
    first, second = run(BLOCKING, own, receiver)
    assert first.startswith("keep this secret: whsec_")
    assert second == "delivered"
    lines = run(f"{ASYNCHRONOUS}\nimport asyncio\nasyncio.run(main())\n", own, receiver)
    assert len(lines) == 101
    count, *progress = run(MANY, own, receiver)
    assert count == "0"
    assert progress[-1] == "0/0 succeeded, 0 failed"


def test_the_table_of_verbs_is_complete() -> None:
    named = {row[0].strip("`"): {verb.strip("` ") for verb in row[1].split(",")} for row in rows(PAGE, "## Python")}
    with Client("http://127.0.0.1:1") as client:
        groups: dict[str, Group[object]] = {"client": client}  # type: ignore[type-var, dict-item]
        groups |= {f"client.{name}": one for name, one in vars(client).items() if isinstance(one, Group)}
    there = {
        name: {verb for verb in dir(group) if isinstance(getattr(type(group), verb, None), Verb | Each)}
        for name, group in groups.items()
    }
    assert named == there


def test_the_example_of_the_receiver_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = fences(HOW_TO / "receiving.md", "python")
    secret = new_secret()
    (tmp_path / "receiver.py").write_text(code.replace("whsec_…", secret))
    place = runpy.run_path("receiver.py")
    answer, once = place["answer"], place["once"]
    assert [answer(signed(secret, "an-id"), b"{}") for _ in range(2)] == [204, 204]
    assert answer(signed(secret, "an-id"), b"[]") == 401
    with once("another"):
        assert answer(signed(secret, "another"), b"{}") == 503


def signed(secret: str, webhook_id: str) -> dict[str, str]:
    lines = Signer([secret]).headers(webhook_id, int(time.time()), b"{}")
    return dict(line.split(": ", 1) for line in lines)  # type: ignore[misc]
