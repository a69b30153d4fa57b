"""A shelf: a store with deliveries in every state, of two event types and three endpoints, from different times.

Beside it is another organization with the same content, which must never appear in the first one's lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from doorstep.clock import DAY, SECOND
from doorstep.model.action import ActionKind
from doorstep.model.attempt import Code, Outcome
from doorstep.model.claim import Claim, Quota, Settlement
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventSummary, EventView, Submission
from doorstep.model.record import earliest_id
from doorstep.stores.store import Store
from tests.contract.scene import SOON, Scene
from tests.support.builders import a_submission, failure, new_id, refusal, success

TYPES = ("user.created", "order.paid")


class Shelf(Scene):
    """`submissions` holds everything ever accepted for the organization, oldest first."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.endpoints: list[Endpoint] = []
        self.submissions: list[Submission] = []

    async def fill(self) -> Shelf:
        """Fill the store in three rounds, a day apart. The first round's letters are old, and half are archived."""
        await self.prepare()
        self.endpoints = [self.endpoint, await self.add_endpoint(name="second"), await self.add_endpoint(name="third")]
        for day in range(3):
            await self._round()
            if day == 0:
                await self.store.archive(self.now + 1, self.now, 4)
            self.wait(DAY)
        return self

    async def all_events(self) -> list[EventView]:
        return [await self.store.get(EventView, self.org_id, one.event.event_id) for one in self.submissions]

    async def all_deliveries(self) -> list[Delivery]:
        """All deliveries in order of creation."""
        ids = [owed.delivery_id for one in self.submissions for owed in one.deliveries]
        return [await self.delivery(delivery_id) for delivery_id in ids]

    async def put(self, endpoints: Sequence[Endpoint], event_type: str = TYPES[0], **fields: object) -> Submission:
        """Accept one more event. Its id contains the time of acceptance."""
        self.wait(1)
        number = new_id().int & 2**64 - 1
        event_id = UUID(int=earliest_id(self.now).int | number)
        fields = {"event_id": event_id, "event_type": event_type, "created_at": self.now} | fields
        targets = [endpoint.endpoint_id for endpoint in endpoints]
        made = a_submission(self.org_id, targets, due_at=self.now, **fields)  # type: ignore[arg-type]
        await self.submit(made)
        self.submissions.append(made)
        return made

    async def claim_all(self, limit: int = 100) -> list[Claim]:
        quotas = [Quota(endpoint.endpoint_id, limit) for endpoint in self.endpoints]
        return await self.store.claim(quotas, self.now, self.now + SOON, "w1")

    async def _round(self) -> None:
        for event_type in TYPES:
            await self.put([], event_type)
            for _ in range(3):
                await self.put(self.endpoints, event_type)
        for n, claim in enumerate(sorted(await self.claim_all(), key=lambda claim: claim.delivery_id)):
            self.wait(1)
            await self._end(n, claim)
        await self.put(self.endpoints[:2], TYPES[1])

    async def _end(self, n: int, claim: Claim) -> None:
        ends = (self._deliver, self._retry, self._die, self._hold, self._die, self._retry, self._resolve, self._delete)
        await ends[n % len(ends)](n, claim)

    async def _deliver(self, n: int, claim: Claim) -> None:
        await self.settle(Settlement.delivered(claim, success(self.now)))

    async def _retry(self, n: int, claim: Claim) -> None:
        due_at = self.now + (n % 3) * SECOND
        await self.settle(Settlement.retry(claim, failure(self.now), due_at, claim.retries_max))

    async def _die(self, n: int, claim: Claim) -> None:
        outcomes: list[Outcome] = [
            refusal(self.now, reason=f"no page {n}"),
            refusal(self.now, Code.REJECTED, "not like this"),
        ]
        await self.settle(Settlement.dead(claim, outcomes[n % 2]))

    async def _hold(self, n: int, claim: Claim) -> None:
        """Do nothing, so that the delivery stays in progress."""

    async def _resolve(self, n: int, claim: Claim) -> None:
        await self._die(n, claim)
        await self.act(ActionKind.RESOLVE, claim.delivery_id)

    async def _delete(self, n: int, claim: Claim) -> None:
        await self._die(n, claim)
        await self.act(ActionKind.DELETE, claim.delivery_id)


async def two_shelves(store: Store) -> tuple[Shelf, Shelf]:
    one, other = Shelf(store), Shelf(store)
    await one.fill()
    await other.fill()
    return one, other


def summary(view: EventView) -> EventSummary:
    """An event as it appears in a list."""
    return EventSummary(
        event_id=view.event.event_id,
        event_type=view.event.event_type,
        created_at=view.event.created_at,
        correlation_id=view.event.correlation_id,
        status=view.status,
        deliveries=view.deliveries,
        retry_attempts=view.retry_attempts,
        last_retry_at=view.last_retry_at,
        failed_at=view.failed_at,
        next_retry_at=view.next_retry_at,
    )
