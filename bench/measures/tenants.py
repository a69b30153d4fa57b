"""Whether the cost of an organization depends on the others: 100,000 endpoints in 10,000 organizations, compared with
100 in 10. The databases are prepared once per store, and copied."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import NamedTuple
from uuid import UUID

import psutil
import uvloop
from msgspec.structs import replace

from bench.databases import Database, StoreName
from bench.figures import Figure, at_most
from bench.serving import Client, Serving
from bench.setting import PAYLOAD, Setting, settings_for
from bench.tenanted import ENDPOINTS_OF_ORG, add_tenants, endpoint_id_of, org_id_of
from bench.timing import in_own_process
from doorstep.app import Doorstep
from doorstep.engine.accept import Draft
from doorstep.model.endpoint import Endpoint
from tests.support.shortcuts import put

FEW = 100
_BODY = b'{"event_type": "none", "payload": %s}' % PAYLOAD
_SETTLE_SECONDS = 1.0
_STARTS = 3
_MIB = 1024 * 1024
_CREATE, _OTHERS, _OWN, _START = at_most(1.5), at_most(1.1), at_most(1.5), at_most(1.5)


class Costs(NamedTuple):
    """CPU in seconds: the median of each kind of call."""

    create: float
    accept: float
    after_other: float
    """Accepting right after another organization has changed an endpoint."""
    after_own: float


class Start(NamedTuple):
    seconds: float
    memory_mib: float


def measure(setting: Setting) -> Iterator[Figure]:
    many = setting.scaled(100_000, 10_000)
    for store in setting.stores:
        yield from _calls(setting, store, many)
        yield from _starts(setting, store, many)


@contextmanager
def _database(setting: Setting, store: StoreName, endpoints: int) -> Iterator[Database]:
    build = partial(add_tenants, url=setting.receiver.url("ok"), endpoints=endpoints)
    with setting.databases.copy(store, f"tenants_{endpoints}", build) as database:
        yield database


# -- calls -------------------------------------------------------------------------------------------------


def _calls(setting: Setting, store: StoreName, many: int) -> Iterator[Figure]:
    times = setting.scaled(200, 50)
    costs: dict[int, Costs] = {}
    for endpoints in (FEW, many):
        with _database(setting, store, endpoints) as database:
            costs[endpoints] = Costs(*in_own_process(_measured, database.url, endpoints, times))
    few, lots = costs[FEW], costs[many]
    beside = f"beside {many:,} endpoints ÷ beside {FEW}"
    note = f"{1e6 * lots.create:,.0f} µs of CPU, N={times}"
    yield Figure(f"{store}: create an endpoint {beside}", lots.create / few.create, "", _CREATE, note)
    note = f"{1e6 * lots.accept:,.0f} µs of CPU"
    yield Figure(f"{store}: accept an event {beside}", lots.accept / few.accept, "", None, note)
    figure = f"{store}: accept right after another organization's change ÷ without"
    yield Figure(figure, lots.after_other / lots.accept, "", _OTHERS, f"beside {many:,} endpoints")
    figure = f"{store}: accept right after a change of one's own ÷ without"
    yield Figure(
        figure, lots.after_own / lots.accept, "", _OWN, f"the change was made by this process, beside {many:,}"
    )


def _measured(url: str, endpoints: int, times: int) -> Costs:
    return uvloop.run(_costs(url, endpoints, times))


async def _costs(url: str, endpoints: int, times: int) -> Costs:
    doorstep = Doorstep(settings_for(url))
    await doorstep.open()
    orgs = [UUID(org_id_of(number)) for number in range(1, endpoints // ENDPOINTS_OF_ORG + 1)]
    sender, other = orgs[0], orgs[1]
    accept = partial(doorstep.components.accepter.accept, [_draft(sender)])
    for _ in range(10):
        await accept()
    plain: list[float] = []
    after_other: list[float] = []
    after_own: list[float] = []
    create: list[float] = []
    for number in range(times):  # alternated, because the machine is not equally busy all the time
        plain.append(await _cpu_of(accept))
        await _change_elsewhere(doorstep, other, ENDPOINTS_OF_ORG + 1)
        after_other.append(await _cpu_of(accept))
        plain.append(await _cpu_of(accept))
        await doorstep.components.endpoints.update(
            sender, UUID(endpoint_id_of(1)), {"description": f"{number}"}, "bench"
        )
        after_own.append(await _cpu_of(accept))
        owner, url = orgs[2 + number % (len(orgs) - 2)], "http://127.0.0.1:9/"
        new = partial(doorstep.create_endpoint, name=f"new {number}", url=url, org_id=owner)
        create.append(await _cpu_of(new))
    await doorstep.close()
    return Costs(median(create), median(plain), median(after_other), median(after_own))


def _draft(org_id: UUID) -> Draft:
    """An event that goes to all endpoints of its organization, tomorrow."""
    tomorrow = time.time_ns() // 1_000 + 86_400_000_000
    return Draft(org_id=org_id, event_type="model", payload=PAYLOAD, correlation_id=f"{0:032x}", deliver_at=tomorrow)


async def _change_elsewhere(doorstep: Doorstep, org_id: UUID, number: int) -> None:
    """Change an endpoint as another process would, so that this one does not know."""
    store = doorstep.components.store
    endpoint = await store.get(Endpoint, org_id, UUID(endpoint_id_of(number)))
    await put(store, replace(endpoint, description=f"{endpoint.version}"))


async def _cpu_of(call: Callable[[], Awaitable[object]]) -> float:
    """The CPU of this process, which the threads of the store are part of."""
    before = time.process_time()
    await call()
    return time.process_time() - before


# -- starting ----------------------------------------------------------------------------------------------


def _starts(setting: Setting, store: StoreName, many: int) -> Iterator[Figure]:
    starts: dict[int, list[Start]] = {FEW: [], many: []}
    with _database(setting, store, FEW) as small, _database(setting, store, many) as large:
        for _ in range(_STARTS):
            starts[FEW].append(_started(small))
            starts[many].append(_started(large))
    few, lots = [Start(*map(median, zip(*starts[count], strict=True))) for count in (FEW, many)]
    with_many = f"with {many:,} endpoints ÷ with {FEW}"
    note = f"{lots.seconds:.2f} s of CPU"
    yield Figure(
        f"{store}: CPU of the start until it has accepted an event {with_many}",
        lots.seconds / few.seconds,
        "",
        _START,
        note,
    )
    note = f"{lots.memory_mib:.0f} MiB"
    yield Figure(f"{store}: memory after the start {with_many}", lots.memory_mib / few.memory_mib, "", _START, note)


def _started(database: Database) -> Start:
    with Serving(database) as serving:
        client = Client(serving.port)
        client.send(_BODY)
        client.close()
        seconds = serving.cpu_seconds()
        time.sleep(_SETTLE_SECONDS)
        return Start(seconds, psutil.Process(serving.pid).memory_info().rss / _MIB)
