"""Batches: found by status, read with their carrier log, resubmitted. They are submitted as events are."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from doorstep.api.auth import Caller
from doorstep.api.batch_schemas import BatchesAsked, BatchesOut, BatchOut, SubmissionOut, SubmissionsOut
from doorstep.api.event_schemas import ReasonIn
from doorstep.api.routing import group
from doorstep.api.schemas import CountedPagination, Pagination
from doorstep.app import Doorstep

_NO_REASON = ReasonIn()


def batch_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/batches", "batches")

    @router.get("")
    async def list_batches(asked: Annotated[BatchesAsked, Query()], caller: Caller) -> BatchesOut:
        """Batches, the newest first; of one status, if asked for."""
        page = await doorstep.batches.list(
            asked.wanted_status, asked.event_type, cursor=asked.cursor, limit=asked.limit, org_id=caller.org_id
        )
        batches = [BatchOut.of(batch) for batch in page.items]
        return BatchesOut(batches=batches, pagination=Pagination.of(page, asked.limit))

    @router.get("/{batch_id}")
    async def read_batch(batch_id: UUID, caller: Caller) -> BatchOut:
        """How a batch stands."""
        return BatchOut.of(await doorstep.batches.batch(batch_id, org_id=caller.org_id))

    @router.get("/{batch_id}/attempts")
    async def list_submissions(batch_id: UUID, caller: Caller) -> SubmissionsOut:
        """The carrier log: every submission in order, with what the carrier said."""
        attempts = await doorstep.batches.attempts(batch_id, org_id=caller.org_id)
        log = [SubmissionOut.of(attempt) for attempt in attempts]
        return SubmissionsOut(attempts=log, pagination=CountedPagination.whole(log))

    @router.post("/{batch_id}/resubmit", status_code=202)
    async def resubmit_batch(batch_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> BatchOut:
        """Submit a FAILED batch again, at once and with all its retries."""
        return BatchOut.of(await doorstep.batches.resubmit(batch_id, caller.prefix, body.reason, org_id=caller.org_id))

    return router
