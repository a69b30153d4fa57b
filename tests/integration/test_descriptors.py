"""A server that runs out of file descriptors charges nothing to its receivers and delivers as fast as it still can."""

from __future__ import annotations

import os
import resource
from itertools import count, islice
from pathlib import Path
from typing import Any

from tests.support.program import Program, serving, wait_for
from tests.support.receiver import Receiver

_EVENTS = 120
_SPARE = 12
"""Descriptors for the test's own requests and a few deliveries."""


def limit_descriptors(program: Program, spare: int | None) -> None:
    """Leave the program only this many free descriptors; None for its usual limit."""
    pid = program.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    free = (number for number in count() if number not in used)
    soft = hard if spare is None else next(islice(free, spare, None))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def postponed(program: Program) -> int:
    (line,) = [
        one
        for one in program.get("/metrics").body.decode().splitlines()
        if one.startswith("doorstep_process_attempts_postponed_total ")
    ]
    return int(float(line.split()[1]))


def told(program: Program) -> list[dict[str, Any]]:
    return [line for line in program.facts("notice") if "attempts were postponed" in line["message"]]


def test_without_free_descriptors_no_attempt_is_used_up_no_circuit_opens_and_everything_arrives(
    tmp_path: Path, receiver: Receiver
) -> None:
    with serving(tmp_path, "--workers", "0") as program:
        made = program.post("/v1/endpoints", {"name": "shop", "url": receiver.url, "policy": [60]})
        assert made.status == 201, made
        endpoint = f"/v1/endpoints/{made.json['endpoint_id']}"
        limit_descriptors(program, _SPARE)
        receiver.hold.clear()  # so that each attempt needs a connection of its own
        events = [{"event_type": "order.paid", "payload": {"n": n}} for n in range(_EVENTS)]
        assert program.post("/v1/events/batch", {"events": events}).status == 202
        wait_for(lambda: told(program), lambda: f"no word of a shortage; {program.err}")
        receiver.hold.set()
        wait_for(lambda: len({one.headers["webhook-id"] for one in receiver.received}) == _EVENTS)
        limit_descriptors(program, None)
        wait_for(lambda: len(program.get("/v1/events?status=delivered&limit=200").json["events"]) == _EVENTS)
        assert postponed(program) > 0
        assert program.get(f"{endpoint}/circuit").json["state"] == "closed"
        attempts = program.get("/v1/attempts?limit=200").json["attempts"]
        assert [one for one in attempts if one["error_code"] is not None or one["number"] != 1] == []
        assert len(told(program)) < 5, "the log is not flooded"
