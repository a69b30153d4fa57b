"""`doorstep demo` soon contains data of every kind, and leaves nothing behind when it ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.commands import Remote
from tests.support.program import Program, running, wait_for


class Playing(Remote):
    """Commands that run against a demo, and what the demo printed at startup."""

    def __init__(self, demo: Program) -> None:
        wait_for(lambda: demo.out)
        self.told: dict[str, Any] = json.loads(demo.out[0])
        self.environment = {"DOORSTEP_URL": self.told["url"], "DOORSTEP_API_KEY": self.told["key"]}


def shown_within_a_minute(probe: Callable[[], object]) -> None:
    wait_for(lambda: bool(probe()), patience_seconds=60)


def statuses_of_bills(remote: Remote) -> set[str]:
    return {one["status"] for one in remote.json("pipelines", "list", "bill")["entities"]}


def channels(remote: Remote) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = remote.json("channels", "list")["channels"]
    return found


def test_there_is_something_of_everything_and_then_nothing(tmp_path: Path) -> None:
    with running("demo", "--port", "0", "--rate", "10", "--json", folder=tmp_path) as demo:
        remote = Playing(demo)
        shown_within_a_minute(lambda: statuses_of_bills(remote) & {"scanned", "reading", "matching"})
        shown_within_a_minute(
            lambda: len({one["error_code"] for one in remote.json("dead-letters", "groups")["groups"]}) >= 3
        )
        shown_within_a_minute(lambda: remote.json("endpoints", "circuit", "erp")["state"] == "open")
        shown_within_a_minute(lambda: remote.json("retry-queue", "list")["deliveries"])
        shown_within_a_minute(lambda: remote.json("events", "list", "--status", "delivered")["events"])
        for status in ("PENDING", "CONFIRMED", "FAILED"):
            shown_within_a_minute(lambda: remote.json("batches", "list", "--status", status)["batches"])  # noqa: B023
        shown_within_a_minute(lambda: {"set_aside", "to_approve"} <= statuses_of_bills(remote))
        shown_within_a_minute(lambda: all(one["last_delivered_at"] for one in channels(remote)))
        shown_within_a_minute(lambda: remote.json("audit", "--actor", "marco")["audit"])
        folder = Path(remote.told["folder"])
        assert (folder / "doorstep.db").exists()
        demo.signal(signal.SIGINT)
        assert demo.wait() == 0
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
    assert len(demo.out) == 1, "its log is elsewhere"
    assert "Traceback" not in "\n".join(demo.err)


def test_it_prints_commands_that_work_as_they_stand(tmp_path: Path) -> None:
    with running("demo", "--port", "0", folder=tmp_path) as demo:
        wait_for(lambda: any("Ctrl-C" in line for line in demo.err))
        commands = [
            line.split("doorstep ", 1)[1] for line in demo.err if line.startswith("  ") and "export" not in line
        ]
        (export,) = [line.split()[1:] for line in demo.err if "export" in line]
        remote = Remote.__new__(Remote)
        remote.environment = dict(one.split("=", 1) for one in export)
        assert len(commands) == 4
        for command in commands:
            bounded = ("--for", "100ms") if command == "tail" else ()
            assert remote(*command.split(), *bounded).code == 0, command


def test_a_demo_that_is_kept_goes_on_where_it_ended(tmp_path: Path) -> None:
    names, told = [], []
    for _ in range(2):
        with running("demo", "--port", "0", "--keep", "--json", folder=tmp_path) as demo:
            remote = Playing(demo)
            names.append([one["name"] for one in remote.json("endpoints", "list")["endpoints"]])
            told.append([one["name"] for one in channels(remote)])
            remote.json("send", "customer.created", "{}", "--endpoint", "storefront", "--wait")
            demo.signal(signal.SIGINT)
            assert demo.wait() == 0
    assert names[0] == names[1]
    assert told[0] == told[1] == ["on-call", "#shop"]
    assert {path.name for path in tmp_path.iterdir()} == {"doorstep-demo"}
