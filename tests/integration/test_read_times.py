"""R8.2, R8.3: statuses and the failed inbox are read in milliseconds beside 10,000 failed events, while others work."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from doorstep import Doorstep, Settings
from doorstep.encryption import new_secret_key
from tests.support.patience import PATIENCE_SECONDS
from tests.support.program import ADMIN_KEY, Program, serving
from tests.support.receiver import Receiver
from tests.support.stores import EITHER_STORE
from tests.support.stretching import stretched

_FAILED = 10_000
_CLIENTS, _READS = 4, 50
_P95_SECONDS = 0.05


@pytest.fixture(params=EITHER_STORE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'failed.db'}"
    return str(request.getfixturevalue("durable_postgres_url"))


async def test_the_failed_inbox_and_statuses_are_read_in_time_beside_ten_thousand_failed_events(
    url: str, receiver: Receiver, tmp_path: Path
) -> None:
    environment = {"DOORSTEP_DATABASE_URL": url, "DOORSTEP_SECRET_KEY": new_secret_key()}
    settings = Settings(database_url=url, secret_key=environment["DOORSTEP_SECRET_KEY"], allow_addresses="127.0.0.0/8")
    ids = await _with_failed_events(settings, receiver.url)
    with serving(tmp_path, environment=environment) as program, ThreadPoolExecutor(_CLIENTS + 1) as threads:
        first = program.get("/v1/inbox?status=failed&limit=50").json
        assert (first["pagination"]["total_count"], first["pagination"]["total_is_floor"]) == (_FAILED, False)
        assert [event["event_id"] for event in first["events"]] == ids[:50]
        assert {len(event["payload"]["text"]) for event in first["events"]} == {1_000}
        sender = threads.submit(_send_events, program)
        readers = [threads.submit(_read, program, ids[number::_CLIENTS]) for number in range(_CLIENTS)]
        took = [reader.result() for reader in readers]
        sender.result()
    for name in ("status", "page"):
        seconds = sorted(one for times in took for one in times[name])
        p95 = seconds[int(len(seconds) * 0.95)]
        print(f"\n{name}: N = {len(seconds)}, median {seconds[len(seconds) // 2]:.4f} s, p95 {p95:.4f} s")
        assert p95 <= stretched(_P95_SECONDS), name


async def _with_failed_events(settings: Settings, receiver_url: str) -> list[str]:
    """Create failed events without attempting them; return their ids, oldest first."""
    doorstep, ids = Doorstep(settings), list[str]()
    await doorstep.open()
    endpoint, _ = await doorstep.create_endpoint(name="broken", url=receiver_url, event_types=("order.*",))
    events = [("order.paid", {"text": "x" * 1_000})] * 1_000
    for _ in range(_FAILED // 1_000):
        ids += [str(one.event_id) for one in await doorstep.send_many(events)]
    bury = partial(doorstep.components.store.dead_letter_waiting, endpoint.endpoint_id, "GONE", "the test")
    while (await bury(doorstep.clock.now(), 2_000)).moves:
        pass
    await doorstep.close()
    return sorted(ids)


def _send_events(program: Program) -> None:
    """New events keep coming and are delivered."""
    for number in range(_READS):
        program.post("/v1/events", {"event_type": "form.sent", "payload": number})


def _read(program: Program, ids: list[str]) -> dict[str, list[float]]:
    """Read statuses and consecutive pages in turns, over one connection."""
    place, cursor = urlsplit(program.url), ""
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_SECONDS)
    took: dict[str, list[float]] = {"status": [], "page": []}
    for event_id in ids[:_READS]:
        page = _timed(connection, f"/v1/inbox?status=failed&limit=50{cursor}", took["page"])
        cursor = f"&cursor={page['pagination']['cursor']}"
        assert _timed(connection, f"/v1/events/{event_id}/status", took["status"])["status"] == "failed"
    connection.close()
    return took


def _timed(connection: http.client.HTTPConnection, path: str, took: list[float]) -> Any:
    began = time.perf_counter()
    connection.request("GET", path, headers={"X-API-Key": ADMIN_KEY})
    response = connection.getresponse()
    content = response.read()
    took.append(time.perf_counter() - began)
    assert response.status == 200, content
    return json.loads(content)
