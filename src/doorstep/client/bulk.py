"""Bulk operations under way."""

from __future__ import annotations

from collections.abc import Callable

from doorstep.client.answers.bulk import Bulk
from doorstep.client.answers.deliveries import QueuedDelivery
from doorstep.client.call import Call, Id, Page, get, one, paged, post
from doorstep.client.steps import Steps
from doorstep.client.verbs import Group, R_co, each_of, flow, verb
from doorstep.client.waiting import until


class BulkOperations(Group[R_co]):
    """`client.bulk`. They are begun by the queue or the endpoint that they are about."""

    @verb
    def page(self, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[Bulk]]:
        """One page of them, newest first."""
        return get(paged("bulk", Bulk), "/v1/bulk", query={"limit": limit, "cursor": cursor})

    each = each_of(page)

    @verb
    def read(self, bulk_id: Id) -> Call[Bulk]:
        """How far it is."""
        return _read(bulk_id)

    @flow
    def wait(
        self, bulk_id: Id, timeout: float = 60.0, *, on_progress: Callable[[Bulk], object] = lambda _: None
    ) -> Steps[Bulk]:
        """Wait until it is finished or cancelled; `on_progress` is told of every look. TimedOut after `timeout` s."""

        def ended(seen: Bulk) -> bool:
            on_progress(seen)
            return seen.ended

        return until(lambda: self._perform(_read(bulk_id)), ended, timeout, f"bulk operation {bulk_id}")

    @verb
    def pause(self, bulk_id: Id) -> Call[Bulk]:
        """Hold it where it is."""
        return post(one(Bulk), "/v1/bulk/{bulk_id}/pause", bulk_id)

    @verb
    def resume(self, bulk_id: Id) -> Call[Bulk]:
        """Let it go on."""
        return post(one(Bulk), "/v1/bulk/{bulk_id}/resume", bulk_id)

    @verb
    def cancel(self, bulk_id: Id) -> Call[Bulk]:
        """End it here; what it has done stays done."""
        return post(one(Bulk), "/v1/bulk/{bulk_id}/cancel", bulk_id)

    @verb
    def failures(
        self, bulk_id: Id, *, limit: int | None = None, cursor: str | None = None
    ) -> Call[Page[QueuedDelivery]]:
        """One page of the deliveries that failed again."""
        query = {"limit": limit, "cursor": cursor}
        return get(paged("deliveries", QueuedDelivery), "/v1/bulk/{bulk_id}/failures", bulk_id, query=query)

    each_failure = each_of(failures)


def _read(bulk_id: Id) -> Call[Bulk]:
    return get(one(Bulk), "/v1/bulk/{bulk_id}", bulk_id)
