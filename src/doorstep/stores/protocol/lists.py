"""Lists, page by page, and how long they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.batch import BatchFilter
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.event import EventStatus, EventSummary, EventView
from doorstep.model.listing import CauseGroup, Count, DeadLetterFilter, EventFilter, Page, RetryQueueFilter
from doorstep.stores.limits import COUNT_MAX


class ListStore(Protocol):
    """A page goes on from where the cursor of the page before says; InvalidInput for any other cursor. Whatever changes
    meanwhile, what matches all the time is met exactly once, if its place in the order stays. What a call costs is
    bounded whatever the filter (stores/limits.py): after so many index entries it gives what it found, perhaps
    nothing, and a cursor. An organization that does not exist has empty lists.
    """

    async def list_events(
        self, org_id: UUID, wanted: EventFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[EventSummary]:
        """Events by their ids, that is by creation, the newest first unless asked otherwise."""

    async def count_events(self, org_id: UUID, wanted: EventFilter, limit: int = COUNT_MAX) -> Count:
        """Of those in the wanted time `limit` are looked at."""

    async def inbox(
        self, org_id: UUID, status: EventStatus, cursor: str | None = None, limit: int = 50
    ) -> Page[EventView]:
        """RECEIVED: events that no endpoint takes, until they are acknowledged. FAILED: failed events.

        Oldest first, by their ids. A page has at least one event, and ends when its payloads reach INBOX_BYTES_MAX.
        """

    async def count_inbox(self, org_id: UUID, status: EventStatus, limit: int = COUNT_MAX) -> Count: ...

    async def retry_queue(
        self, org_id: UUID, wanted: RetryQueueFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        """What failed at least once and is not settled, by `due_at`, then by their ids."""

    async def count_retry_queue(self, org_id: UUID, wanted: RetryQueueFilter, limit: int = COUNT_MAX) -> Count:
        """Counts look at no more than `limit` entries; beyond, the value is only a floor."""

    async def retry_queue_by_endpoint(
        self, org_id: UUID, wanted: RetryQueueFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]:
        """For which endpoints they are, of as many entries as a count looks at."""

    async def dead_letters(
        self, org_id: UUID, wanted: DeadLetterFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        """Dead letters by the time they died (`settled_at`), then by their ids, the newest first."""

    async def count_dead_letters(self, org_id: UUID, wanted: DeadLetterFilter, limit: int = COUNT_MAX) -> Count: ...

    async def dead_letters_by_endpoint(
        self, org_id: UUID, wanted: DeadLetterFilter, limit: int = COUNT_MAX
    ) -> dict[UUID, int]: ...

    async def cause_groups(
        self, org_id: UUID, wanted: DeadLetterFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[CauseGroup]:
        """Dead letters by cause. Pages go through the causes in an order of their own; a page has the most recent
        death first. With an event type only the newest letters of each cause are looked at for it (GROUP_DEPTH,
        GROUPS_TYPED_MAX).
        """

    async def deaths_by_hour(
        self, org_id: UUID, causes: Sequence[int], since: Instant, hours: int
    ) -> dict[int, tuple[int, ...]]:
        """How many of the letters that are still dead died of each cause in each hour from `since` on, whatever their
        type; of a crowded hour only so many as are counted (DEATHS_COUNTED_MAX)."""

    async def list_batches(
        self, org_id: UUID, wanted: BatchFilter, cursor: str | None = None, limit: int = 50
    ) -> Page[Delivery]:
        """The batch deliveries by their ids, that is by creation, the newest first; see model/batch.py. What an operator
        deleted is left out."""

    async def list_endpoints(
        self, org_id: UUID, state: EndpointState | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Endpoint]:
        """Endpoints by their ids, that is by creation, the oldest first; deleted ones only if asked for."""

    async def list_audit(
        self,
        org_id: UUID,
        actor: str | None = None,
        action: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        about: Sequence[UUID] = (),
    ) -> Page[AuditEntry]:
        """The lines as they were written, the newest first; of those `about` something, those that name one of these."""
