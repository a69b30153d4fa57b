"""Names whose answers change between lookups: Doorstep connects to the address that it has checked.

Here 127.0.0.2 stands for a public address and 127.0.0.1 for a private one; both listen on the same port. All names are
public while endpoints are created, because an endpoint with plain http and only private addresses is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
def names(tmp_path: Path) -> Names:
    return Names(tmp_path / "names")


class Names:
    """The names and their answers, which a test can change."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._asked = Path(f"{file}.asked")

    def answer(self, answers: Mapping[str, str]) -> None:
        self._asked.unlink(missing_ok=True)
        self.file.write_text("".join(f"{name} {listed}\n" for name, listed in answers.items()))

    @property
    def queries(self) -> int:
        """The number of queries since the answers were set."""
        return len(self._asked.read_text().splitlines())


@pytest.fixture
def environment(names: Names) -> dict[str, str]:
    names.answer(dict.fromkeys(NAMES, "127.0.0.2"))
    return {
        "PYTHONPATH": str(RESOLVER),
        "FAKE_NAMES": str(names.file),
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
    tmp_path: Path, names: Names, environment: dict[str, str], private: Listener, public: Listener
) -> None:
    with serving(tmp_path, environment=environment) as program:
        endpoints = {name: create(program, name, private.port) for name in NAMES}
        names.answer(NAMES)
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
    assert names.queries == 4 * len(NAMES), "each try asked anew"


def test_a_name_with_only_forbidden_addresses_is_refused_when_an_endpoint_is_created(
    tmp_path: Path, names: Names, environment: dict[str, str], private: Listener, public: Listener
) -> None:
    names.answer(NAMES)
    with serving(tmp_path, environment=environment) as program:
        answers = {name: program.post("/v1/endpoints", endpoint(name, private.port)) for name in NAMES}
    accepted = {name for name, answer in answers.items() if answer.status == 201}
    assert accepted == {"both.example", "public-then-private.example"}
    for name in NAMES.keys() - accepted:
        assert answers[name].status == 422, answers[name].body
        assert answers[name].json["detail"].startswith(f"url: must not point to {name}, which is now "), name
    assert public.seen == [], "a check of the addresses needs no connection"


def test_doctor_connects_to_the_permitted_answers_alone(
    tmp_path: Path, names: Names, environment: dict[str, str], private: Listener, public: Listener
) -> None:
    with serving(tmp_path, environment=environment) as program:
        for name in NAMES:
            create(program, name, private.port)
    names.answer(NAMES)
    given = environment | {"DOORSTEP_PORT": str(free_port())}
    checks = doorstep("doctor", "--json", folder=tmp_path, environment=given).lines[0]["checks"]
    reached = {one["found"].split(":")[0] for one in checks if one["check"] == "endpoint" and one["verdict"] == "ok"}
    assert reached == {"both.example", "public-then-private.example"}
    wait_for(lambda: len(public.seen) == 2)


def endpoint(name: str, port: int) -> dict[str, Any]:
    return {
        "name": name,
        "url": f"http://{name}:{port}/",
        "event_types": ["none"],
        "policy": [],
        "circuit": {"failures_max": 1_000_000},
    }


def create(program: Program, name: str, port: int) -> str:
    answer = program.post("/v1/endpoints", endpoint(name, port))
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
