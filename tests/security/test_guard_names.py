"""Names whose answers change between lookups: Doorstep connects to the address that it has checked.

Here 127.0.0.2 stands for a public address and 127.0.0.1 for a private one; both listen on the same port.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.listening import Listener, listening
from tests.support.commands import doorstep
from tests.support.ports import free_port
from tests.support.program import ADMIN_KEY, Program, serving, wait_for

RESOLVER = Path(__file__).parent / "own_resolver"
NAMES = {
    "always-private.example": "127.0.0.1",
    "mapped.example": "::ffff:127.0.0.1",
    "both.example": "127.0.0.1,::1,127.0.0.2",
    "public-then-private.example": "127.0.0.2 127.0.0.1",
    "private-then-public.example": "127.0.0.1 127.0.0.2",
    "metadata.example": "169.254.169.254",
    "zero.example": "0.0.0.0,::",
}
"""The answers to successive queries of each name."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    names = tmp_path / "names"
    names.write_text("".join(f"{name} {answers}\n" for name, answers in NAMES.items()))
    return {
        "PYTHONPATH": str(RESOLVER),
        "FAKE_NAMES": str(names),
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.2/32",
        "DOORSTEP_ADMIN_KEY": ADMIN_KEY,
    }


@pytest.fixture
def private() -> Iterator[Listener]:
    """A listener to which nobody may connect."""
    with listening("127.0.0.1") as listener:
        yield listener
        assert listener.seen == []


@pytest.fixture
def public(private: Listener) -> Iterator[Listener]:
    with listening("127.0.0.2", private.port) as listener:
        yield listener


def test_only_the_permitted_answers_of_a_name_are_ever_connected_to(
    tmp_path: Path, environment: dict[str, str], private: Listener, public: Listener
) -> None:
    with serving(tmp_path, environment=environment) as program:
        endpoints = {name: create(program, name, private.port) for name in NAMES}
        outcomes = {name: [outcome(program, it) for _ in range(4)] for name, it in endpoints.items()}
    assert outcomes == {
        "always-private.example": ["BLOCKED"] * 4,
        "mapped.example": ["BLOCKED"] * 4,
        "both.example": ["delivered"] * 4,
        "public-then-private.example": ["delivered", "BLOCKED"] * 2,
        "private-then-public.example": ["BLOCKED", "delivered"] * 2,
        "metadata.example": ["BLOCKED"] * 4,
        "zero.example": ["BLOCKED"] * 4,
    }
    assert len(public.seen) == 8, "those that were delivered, and no others"
    assert len((tmp_path / "names.asked").read_text().splitlines()) == 4 * len(NAMES), "each try asked anew"


def test_doctor_connects_to_the_permitted_answers_alone(
    tmp_path: Path, environment: dict[str, str], private: Listener, public: Listener
) -> None:
    with serving(tmp_path, environment=environment) as program:
        for name in NAMES:
            create(program, name, private.port)
    given = environment | {"DOORSTEP_PORT": str(free_port())}
    checks = doorstep("doctor", "--json", folder=tmp_path, environment=given).lines[0]["checks"]
    reached = {one["found"].split(":")[0] for one in checks if one["check"] == "endpoint" and one["verdict"] == "ok"}
    assert reached == {"both.example", "public-then-private.example"}
    wait_for(lambda: len(public.seen) == 2)


def create(program: Program, name: str, port: int) -> str:
    endpoint = {
        "name": name,
        "url": f"http://{name}:{port}/",
        "event_types": ["none"],
        "policy": [],
        "circuit": {"failures_max": 1_000_000},
    }
    answer = program.post("/v1/endpoints", endpoint)
    assert answer.status == 201, answer.body
    return str(answer.json["endpoint_id"])


def outcome(program: Program, endpoint_id: str) -> str:
    """How one event to the endpoint ended: delivered, or the code of its error."""
    event = {"event_type": "a", "payload": 1, "endpoint_ids": [endpoint_id]}
    event_id = program.post("/v1/events", event).json["event_id"]
    path = f"/v1/events/{event_id}"
    wait_for(lambda: program.get(f"{path}/status").json["status"] in ("delivered", "failed"))
    (delivery,) = program.get(path).json["deliveries"]
    return str(delivery["error_code"] or delivery["state"])
