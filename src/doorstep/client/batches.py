"""Batches: what batch handlers submit, and what became of it."""

from __future__ import annotations

from typing import Literal

from doorstep.client.answers.batches import Batch, Submission
from doorstep.client.call import Call, Id, Page, get, one, paged, post
from doorstep.client.verbs import Group, R_co, each_of, verb


class Batches(Group[R_co]):
    """`client.batches`. They are sent as events are; their id is that of the event."""

    @verb
    def page(
        self,
        *,
        status: Literal["PENDING", "CONFIRMED", "FAILED"] | None = None,
        event_type: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[Batch]]:
        """One page, newest first."""
        query = {"status": status, "event_type": event_type, "limit": limit, "cursor": cursor}
        return get(paged("batches", Batch), "/v1/batches", query=query)

    each = each_of(page)

    @verb
    def read(self, batch_id: Id) -> Call[Batch]:
        """How it stands."""
        return get(one(Batch), "/v1/batches/{batch_id}", batch_id)

    @verb
    def attempts(self, batch_id: Id) -> Call[Page[Submission]]:
        """Its carrier log: every submission in order."""
        return get(paged("attempts", Submission), "/v1/batches/{batch_id}/attempts", batch_id)

    @verb
    def resubmit(self, batch_id: Id, *, reason: str | None = None) -> Call[Batch]:
        """Submit it again, at once and with all its retries. Refused unless it is FAILED."""
        return post(one(Batch), "/v1/batches/{batch_id}/resubmit", batch_id, body={"reason": reason})
