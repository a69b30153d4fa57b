"""How much there is and what happened: `/v1/stats`, the health of endpoints, and their targets."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from doorstep.api.auth import Caller
from doorstep.api.routing import group
from doorstep.api.schemas import Asked, Pagination, Shape
from doorstep.api.slo_schemas import SloOut, SloShape, SlosOut
from doorstep.api.stats_schemas import HealthAsked, HealthOut, HealthsOut, ReportOut, StatsAsked, StatsOut
from doorstep.app import Doorstep
from doorstep.model.org import ApiKey
from doorstep.model.rollup import RangeName
from doorstep.policy.reporting import WINDOWS

_RANGE_OF_ENDPOINT: RangeName = "24h"
"""Whoever names an endpoint wants to know how it fared, also without a range."""


def stats_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1", "stats")

    @router.get("/stats", response_model=StatsOut)
    async def read_stats(asked: Annotated[StatsAsked, Query()], caller: Caller) -> Response:
        """How much waits for a retry or in the inbox, or lies dead; with `range`, or an endpoint (24h), what happened then."""
        report, stats = await asyncio.gather(
            _report(doorstep, caller, asked), doorstep.components.reader.stats(caller.org_id)
        )
        return _answer(StatsOut.of(stats, report))

    @router.get("/stats/endpoints", response_model=HealthsOut)
    async def list_health(asked: Annotated[HealthAsked, Query()], caller: Caller) -> Response:
        """How each endpoint fares: success rate, time to delivery, what waits, its circuit."""
        page = await doorstep.components.reporter.health(caller.org_id, WINDOWS[asked.range], asked.cursor, asked.limit)
        healths = [HealthOut.of(one) for one in page.items]
        return _answer(HealthsOut(endpoints=healths, pagination=Pagination.of(page, asked.limit)))

    @router.get("/slo", response_model=SlosOut)
    async def list_slo(asked: Annotated[Asked, Query()], caller: Caller) -> Response:
        """Each endpoint against its target over 30 days, what is left of its error budget, and how quickly that burns."""
        page = await doorstep.components.reporter.slo(caller.org_id, asked.cursor, asked.limit)
        slos = [SloOut.of(one) for one in page.items]
        return _answer(SlosOut(endpoints=slos, pagination=Pagination.of(page, asked.limit)))

    @router.get("/slo/default")
    async def read_default_slo(caller: Caller) -> SloShape:
        """The target that counts for endpoints without one of their own."""
        return SloShape.of(await doorstep.components.reporter.default_slo(caller.org_id))

    @router.put("/slo/default")
    async def change_default_slo(body: SloShape, caller: Caller) -> SloShape:
        """Set the target that counts for endpoints without one of their own."""
        return SloShape.of(await doorstep.components.reporter.set_default_slo(caller.org_id, body.slo(), caller.prefix))

    return router


def _answer(shape: Shape) -> Response:
    """FastAPI would check and copy the 20,000 numbers of a day once more."""
    return Response(shape.model_dump_json(), media_type="application/json")


async def _report(doorstep: Doorstep, caller: ApiKey, asked: StatsAsked) -> ReportOut | None:
    range = asked.range or (_RANGE_OF_ENDPOINT if asked.endpoint_id is not None else None)
    if range is None:
        return None
    report = await doorstep.components.reporter.report(caller.org_id, WINDOWS[range], asked.endpoint_id)
    return ReportOut.of(range, report, whole_org=asked.endpoint_id is None)
