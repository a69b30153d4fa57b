"""Fills a database through the API before a measurement: endpoints, and events that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from bench.databases import Database
from bench.setting import PAYLOAD, settings_for
from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.engine.accept import Draft
from doorstep.model.endpoint import CircuitRules
from doorstep.model.org import Org
from tests.support.shortcuts import put

OTHER_ORG = UUID("00000000-0000-7000-8000-000000000002")
_BATCH = 1_000


@dataclass(frozen=True)
class Wanted:
    """An endpoint to create, and the number of events that wait for it."""

    url: str
    events: int = 0
    event_type: str = "bench"
    org_id: UUID = DEFAULT_ORG
    timeout_seconds: float | None = None
    patient: bool = False
    """Whether the circuit never opens, so that a dead endpoint keeps its slots for the whole run."""
    paused: bool = False


def stock(database: Database, *wanted: Wanted) -> None:
    """Create the tables, the endpoints and their waiting events."""
    asyncio.run(_stock(database, wanted))


async def _stock(database: Database, wanted: Sequence[Wanted]) -> None:
    doorstep = Doorstep(settings_for(database.url))
    await doorstep.open()
    await put(doorstep.components.store, Org(org_id=OTHER_ORG, name="other", created_at=doorstep.clock.now()))
    for want in wanted:
        await _stock_endpoint(doorstep, want)
    await doorstep.close()


async def _stock_endpoint(doorstep: Doorstep, want: Wanted) -> None:
    endpoint, _ = await doorstep.create_endpoint(
        name=want.event_type,
        org_id=want.org_id,
        url=want.url,
        event_types=(want.event_type,),
        timeout_seconds=want.timeout_seconds,
        circuit=CircuitRules(failures_max=1_000_000) if want.patient else None,
    )
    for start in range(0, want.events, _BATCH):
        await doorstep.components.accepter.accept(
            drafts(min(_BATCH, want.events - start), want.event_type, want.org_id)
        )
    if want.paused:
        await doorstep.components.endpoints.pause(want.org_id, endpoint.endpoint_id, "bench")


def drafts(count: int, event_type: str = "bench", org_id: UUID = DEFAULT_ORG) -> list[Draft]:
    draft = Draft(org_id=org_id, event_type=event_type, payload=PAYLOAD, correlation_id=f"{0:032x}")
    return [draft] * count
