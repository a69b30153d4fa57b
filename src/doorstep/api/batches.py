"""Batches: found by status, read with their carrier log, resubmitted. They are submitted as events are."""

from __future__ import annotations

from uuid import UUID

from doorstep.api.answers import all_of, position, shape, whole
from doorstep.api.routing import Caller, Routes
from doorstep.app import Doorstep
from doorstep.model import batch as model
from doorstep.schemas.batches import Batch, BatchesQuery, BatchPage, Submission, SubmissionPage
from doorstep.schemas.shape import ReasonIn

_NO_REASON = ReasonIn()


def batch_routes(doorstep: Doorstep) -> Routes:
    routes = Routes("/v1/batches", "batches")

    @routes.get()
    async def list_batches(asked: BatchesQuery, caller: Caller) -> BatchPage:
        """Batches, the newest first; of one status, if asked for."""
        status = None if asked.status is None else model.BatchStatus(asked.status)
        page = await doorstep.batches.list(
            status, asked.event_type, cursor=asked.cursor, limit=asked.limit, org_id=caller.org_id
        )
        return BatchPage(all_of(_batch_shown, page.items), position(page, asked.limit))

    @routes.get("/{batch_id}")
    async def read_batch(batch_id: UUID, caller: Caller) -> Batch:
        """How a batch stands."""
        return _batch_shown(await doorstep.batches.batch(batch_id, org_id=caller.org_id))

    @routes.get("/{batch_id}/attempts")
    async def list_submissions(batch_id: UUID, caller: Caller) -> SubmissionPage:
        """The carrier log: every submission in order, with what the carrier said."""
        log = all_of(_submission_shown, await doorstep.batches.attempts(batch_id, org_id=caller.org_id))
        return SubmissionPage(log, whole(log))

    @routes.post("/{batch_id}/resubmit", status=202)
    async def resubmit_batch(batch_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> Batch:
        """Submit a FAILED batch again, at once and with all its retries."""
        return _batch_shown(await doorstep.batches.resubmit(batch_id, caller.prefix, body.reason, org_id=caller.org_id))

    return routes


def _batch_shown(batch: model.Batch) -> Batch:
    assert batch.delivery_id is not None, "one that was read has its delivery"
    return shape(Batch, batch)


def _submission_shown(attempt: model.SubmissionAttempt) -> Submission:
    return shape(Submission, attempt)
