"""Dead, slow endpoints with long queues do not delay the deliveries of other endpoints.

The bench measures this with a hundred thousand waiting deliveries and tight bounds. Here the queue is shorter, and the
bound leaves room for a noisy machine. The bound is still far below a single timeout of the dead endpoint, which is how
long an unfair engine would make every delivery wait.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.config import Settings
from doorstep.encryption import new_secret_key
from doorstep.engine import claim
from doorstep.model.endpoint import CircuitRules
from doorstep.model.org import Org
from doorstep.policy.fairness import Demand
from tests.support.shortcuts import put
from tests.support.stores import EITHER_STORE
from tests.support.stretching import stretched

OTHER_ORG = UUID("00000000-0000-7000-8000-000000000002")
WAITING = 2_000
TIMEOUT_SECONDS = 25.0
"""Longer than any test here waits, so a slot taken by the dead endpoint stays taken for the whole test."""
SOON_SECONDS = 3.0
"""An event that has not arrived within this time counts as not delivered."""
PROBES = 40
PLACES = 64
SLACK_SECONDS = 0.5


class Receivers:
    """Two receivers: a healthy one that records when each event arrived, and a dead one that accepts requests and never
    answers."""

    def __init__(self) -> None:
        self.arrived: dict[str, float] = {}
        self.hanging = 0

    async def healthy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            self.arrived[_header(head, "webhook-id")] = time.monotonic()
            await reader.readexactly(int(_header(head, "content-length")))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def dead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hanging += 1
        await reader.read(-1)
        self.hanging -= 1
        writer.close()


@pytest.fixture(params=EITHER_STORE)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("emptied_postgres_url"))
    return f"sqlite:///{tmp_path}/doorstep.db"


@pytest.fixture
async def doorstep(database_url: str) -> AsyncIterator[Doorstep]:
    settings = Settings(
        database_url=database_url,
        secret_key=new_secret_key(),
        allow_addresses="127.0.0.0/8",
        concurrency=PLACES,
        grace_seconds=0,
    )
    async with Doorstep(settings) as opened:
        await put(opened.components.store, Org(org_id=OTHER_ORG, name="other", created_at=opened.clock.now()))
        yield opened


@pytest.mark.parametrize("dead_org", [DEFAULT_ORG, OTHER_ORG], ids=["same-org", "other-org"])
async def test_a_dead_endpoint_with_thousands_waiting_does_not_delay_another(
    doorstep: Doorstep, dead_org: UUID
) -> None:
    idle, flooded = await _slowest_before_and_after_the_flood(doorstep, dead_org)
    assert flooded <= 2 * idle + stretched(SLACK_SECONDS)


async def test_an_organization_with_more_dead_endpoints_than_there_are_places_does_not_delay_another(
    doorstep: Doorstep,
) -> None:
    idle, flooded = await _slowest_before_and_after_the_flood(doorstep, OTHER_ORG, endpoints=2 * PLACES)
    assert flooded <= 2 * idle + stretched(SLACK_SECONDS)


async def test_the_bound_is_broken_when_places_are_given_first_come_first_served(
    doorstep: Doorstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "shares", _first_come)
    idle, flooded = await _slowest_before_and_after_the_flood(doorstep, DEFAULT_ORG, soon=SOON_SECONDS)
    assert flooded > 2 * idle + stretched(SLACK_SECONDS)


async def _slowest_before_and_after_the_flood(
    doorstep: Doorstep, dead_org: UUID, endpoints: int = 1, soon: float | None = None
) -> tuple[float, float]:
    receivers = Receivers()
    healthy = await asyncio.start_server(receivers.healthy, "127.0.0.1", 0)
    dead = await asyncio.start_server(receivers.dead, "127.0.0.1", 0)
    try:
        await doorstep.create_endpoint(name="healthy", url=_url(healthy), event_types=("probe",))
        idle = await _slowest(doorstep, receivers)
        await _flood(doorstep, dead_org, _url(dead), endpoints)
        await _until(lambda: receivers.hanging >= 20)
        assert receivers.hanging >= 20, "the dead endpoint is in the way"
        return idle, await _slowest(doorstep, receivers, soon)
    finally:
        healthy.close()
        dead.close()


async def _flood(doorstep: Doorstep, org_id: UUID, url: str, endpoints: int) -> None:
    """Queue deliveries for dead endpoints. Their circuits are set to stay closed; an open circuit would stop the
    attempts."""
    for number in range(endpoints):
        await doorstep.create_endpoint(
            name=f"dead {number}",
            org_id=org_id,
            url=url,
            event_types=("flood",),
            timeout_seconds=TIMEOUT_SECONDS,
            circuit=CircuitRules(failures_max=1_000_000),
        )
    await doorstep.send_many([("flood", {}, {"org_id": org_id})] * (WAITING // endpoints))


async def _slowest(doorstep: Doorstep, receivers: Receivers, soon: float | None = None) -> float:
    """The longest time from send to arrival among a few dozen events; infinite if one of them has not arrived."""
    sent: dict[str, float] = {}
    for _ in range(PROBES):
        at = time.monotonic()
        receipt = await doorstep.send("probe", {})
        sent[str(receipt.event_id)] = at
        await asyncio.sleep(0.01)
    await _until(lambda: sent.keys() <= receivers.arrived.keys(), soon)
    return max(receivers.arrived.get(event_id, math.inf) - at for event_id, at in sent.items())


async def _until(reached: Callable[[], bool], soon: float | None = None) -> None:
    """Wait for the condition, but give up before the dead endpoint's attempts time out and free their slots."""
    give_up_at = time.monotonic() + (soon or min(stretched(SOON_SECONDS), TIMEOUT_SECONDS - 5))
    while not reached() and time.monotonic() < give_up_at:
        await asyncio.sleep(0.01)


def _first_come(demands: Sequence[Demand], places: int, busy: Mapping[UUID, int]) -> dict[UUID, int]:
    """The unfair scheduling that must not happen: the endpoint that has waited longest gets every free slot."""
    free = places - sum(busy.values())
    longest_waiting = min(demands, key=lambda demand: demand.due_at, default=None)
    return {} if longest_waiting is None or not free else {longest_waiting.endpoint_id: free}


def _url(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    except asyncio.IncompleteReadError:
        return ""


def _header(head: str, name: str) -> str:
    return head.split(f"\r\n{name}: ", 1)[1].split("\r\n", 1)[0]
