"""Programs that declare handlers and start at the same moment agree on one set of endpoints; on both stores."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.config import Settings
from doorstep.encryption import new_secret_key
from doorstep.errors import ConfigError
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.transports.handler_replies import Received
from tests.integration.embedding import write
from tests.support.program import clean_environment
from tests.support.stores import EITHER_STORE
from tests.support.warm_start import end_of, start_python

STARTS = 4


@pytest.fixture(params=EITHER_STORE)
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings for a database that is migrated but empty."""
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/app.db" if sqlite else request.getfixturevalue("postgres_url")
    made = Settings(database_url=url, secret_key=new_secret_key(), admin_key="an-admin-key")
    await Doorstep(made)._store.migrate()
    return made


def a_program(settings: Settings, timeout_seconds: float = 3) -> Doorstep:
    ds = Doorstep(settings)

    @ds.handler("order.*", policy=[1, 2], timeout_seconds=timeout_seconds)
    def ship(event: Received) -> None: ...

    @ds.handler("order.paid", name="bill it", code_map={"77": "RATE_LIMIT"})
    def bill(event: Received) -> None: ...

    return ds


async def starts(settings: Settings, *timeouts: float) -> list[Endpoint]:
    """Open one program per timeout, all concurrently, each with its own store; return the resulting endpoints sorted by
    name."""
    programs = [a_program(settings, timeout) for timeout in timeouts]
    await asyncio.gather(*(program.open(migrate=False) for program in programs))
    endpoints = list(await programs[0].components.directory.endpoints_of(DEFAULT_ORG))
    await asyncio.gather(*(program.close() for program in programs))
    return sorted(endpoints, key=lambda endpoint: endpoint.name)


async def test_programs_that_start_at_once_make_each_endpoint_once(settings: Settings) -> None:
    bill, ship = await starts(settings, *[3] * STARTS)
    assert [bill.name, ship.name] == ["bill it", "ship"]
    assert (ship.timeout_seconds, ship.version, bill.version) == (3, 1, 1)


async def test_a_change_that_all_bring_at_once_is_written_once_and_of_different_ones_the_last_stands(
    settings: Settings,
) -> None:
    _, before = await starts(settings, 3)
    bill, changed = await starts(settings, *[5] * STARTS)
    assert (changed.endpoint_id, changed.timeout_seconds, changed.version) == (before.endpoint_id, 5, 2)
    assert (changed.secrets, bill.version) == (before.secrets, 1)
    _, torn = await starts(settings, 6, 7, 8)
    assert torn.timeout_seconds in (6, 7, 8)
    assert (await starts(settings, 9))[1].timeout_seconds == 9


async def test_what_an_operator_did_outlasts_the_next_start(settings: Settings) -> None:
    async with a_program(settings) as ds:
        (ship,) = [endpoint for endpoint in await ds.endpoints() if endpoint.name == "ship"]
        await ds.components.endpoints.pause(DEFAULT_ORG, ship.endpoint_id, "ops", "for a while")
    _, kept = await starts(settings, 9)
    assert (kept.endpoint_id, kept.state, kept.timeout_seconds) == (ship.endpoint_id, EndpointState.PAUSED, 9)
    async with a_program(settings) as ds:
        await ds.components.endpoints.delete(DEFAULT_ORG, ship.endpoint_id, "ops")
    _, back = await starts(settings, 3)
    assert back.endpoint_id != ship.endpoint_id and (back.name, back.state) == ("ship", EndpointState.ACTIVE)


APP = """
import asyncio, json, sys
from doorstep import Doorstep
ds = Doorstep()

@ds.handler("order.*")
def ship(event): ...

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    await ds.open()
    print(json.dumps([[str(one.endpoint_id), one.name, one.updated_at.isoformat()] for one in await ds.endpoints()]))
    await ds.close()

asyncio.run(main())
"""


def test_so_do_first_starts_in_processes_of_their_own(settings: Settings, tmp_path: Path) -> None:
    write(tmp_path, "app", APP)
    assert settings.secret_key is not None
    given = {
        "DOORSTEP_DATABASE_URL": settings.database_url,
        "DOORSTEP_SECRET_KEY": settings.secret_key.get_secret_value(),
        "DOORSTEP_ADMIN_KEY": "an-admin-key",
    }
    pipe, environment = subprocess.PIPE, clean_environment() | given
    begun = [
        start_python(["app.py"], cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
        for _ in range(STARTS)
    ]
    assert [one.stdout.readline() for one in begun] == [b"ready\n"] * STARTS  # type: ignore[union-attr]
    for one in begun:
        one.stdin.write(b"\n")  # type: ignore[union-attr]
    ended = [end_of(one) for one in begun]
    assert not any(code for code, _, _ in ended), ended
    seen = [json.loads(out) for _, out, _ in ended]
    assert len(seen[0]) == 1 and all(one == seen[0] for one in seen)


async def test_a_handler_whose_name_another_endpoint_has_stops_the_start_and_names_it(settings: Settings) -> None:
    async with Doorstep(settings) as other:
        taken, _ = await other.create_endpoint(name="ship", url="https://shop.example/")
    with pytest.raises(ConfigError, match=f"handler 'ship' cannot be declared.*{taken.endpoint_id}"):
        await a_program(settings).open()
