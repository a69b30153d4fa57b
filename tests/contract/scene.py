"""A scene: a store with one organization and one endpoint, and the few operations that most tests need."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, SECOND, Instant
from doorstep.model.action import Action, ActionKind, ActionResult
from doorstep.model.attempt import Outcome
from doorstep.model.claim import Claim, Lease, Quota, Settled, Settlement
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventStatus, EventView, Receipt, Submission
from doorstep.stores.store import Store
from tests.support.builders import NOW, a_submission, an_endpoint, an_org, failure, refusal, success
from tests.support.shortcuts import count_states, put, routing_versions

LEASE = 30 * SECOND
SOON = 60 * SECOND


class Scene:
    """Time stands still unless a test changes `now`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.org = an_org()
        self.endpoint = an_endpoint(self.org.org_id)
        self.now: Instant = NOW

    async def prepare(self) -> Scene:
        await put(self.store, self.org)
        await put(self.store, self.endpoint, 0)
        return self

    @property
    def org_id(self) -> UUID:
        return self.org.org_id

    async def add_endpoint(self, **changes: object) -> Endpoint:
        endpoint = an_endpoint(self.org_id, **changes)
        await put(self.store, endpoint, 0)
        return endpoint

    async def change_endpoint(self, **changes: object) -> Endpoint:
        """Write a new version of the scene's endpoint."""
        version = self.endpoint.version
        self.endpoint = replace(self.endpoint, version=version + 1, **changes)
        assert await put(self.store, self.endpoint, version)
        return self.endpoint

    # -- the path ------------------------------------------------------------------------------------------

    async def submit(self, *submissions: Submission, lease: Lease | None = None) -> list[Receipt]:
        return await self.store.accept(submissions, await routing_versions(self.store), self.now, lease)

    async def accept(self, count: int = 1, endpoints: Sequence[Endpoint] = (), **fields: object) -> list[Submission]:
        """Accept `count` events with one delivery to each of the endpoints, by default to the scene's own."""
        targets = [endpoint.endpoint_id for endpoint in endpoints or [self.endpoint]]
        fields = {"due_at": self.now} | fields
        made = [a_submission(self.org_id, targets, **fields) for _ in range(count)]  # type: ignore[arg-type]
        await self.submit(*made)
        return made

    async def claim(self, count: int = 100, worker: str = "w1", lease: Instant = LEASE, **quota: object) -> list[Claim]:
        quotas = [Quota(self.endpoint.endpoint_id, count, **quota)]  # type: ignore[arg-type]
        return await self.store.claim(quotas, self.now, self.now + lease, worker)

    async def claim_one(self, worker: str = "w1") -> Claim:
        (claim,) = await self.claim(1, worker)
        return claim

    async def settle(self, *settlements: Settlement) -> Settled:
        return await self.store.settle(settlements, self.now)

    async def deliver(self, *claims: Claim) -> Settled:
        return await self.settle(*(Settlement.delivered(claim, success(self.now)) for claim in claims))

    async def fail(self, *claims: Claim, outcome: Outcome | None = None) -> Settled:
        """Settle each claim as failed, to be retried after a minute."""
        due_at, seen = self.now + SOON, outcome or failure(self.now)
        return await self.settle(*(Settlement.retry(claim, seen, due_at, claim.retries_max) for claim in claims))

    async def kill(self, *claims: Claim) -> Settled:
        """Settle each claim as permanently failed."""
        return await self.settle(*(Settlement.dead(claim, refusal(self.now)) for claim in claims))

    async def act(self, kind: ActionKind, *delivery_ids: UUID, **fields: object) -> ActionResult:
        given: dict[str, object] = {"actor": "ops", "at": self.now, "revive_at": self.now + 5 * SECOND} | fields
        act = Action(kind=kind, org_id=self.org_id, delivery_ids=delivery_ids, **given)  # type: ignore[arg-type]
        result, _ = await self.store.act(act)
        return result

    # -- reaching a state ----------------------------------------------------------------------------------

    async def in_state(self, state: DeliveryState) -> UUID:
        """Create a delivery, bring it into `state` with store methods only, and return its id."""
        (submission,) = await self.accept(due_at=self.now)
        delivery_id = submission.deliveries[0].delivery_id
        await getattr(self, f"_to_{state}")(delivery_id)
        assert (await self.delivery(delivery_id)).state is state
        return delivery_id

    async def _to_pending(self, delivery_id: UUID) -> None:
        """Do nothing: a new delivery is pending."""

    async def _to_in_progress(self, delivery_id: UUID) -> None:
        await self._claim_only(delivery_id)

    async def _to_delivered(self, delivery_id: UUID) -> None:
        await self.deliver(await self._claim_only(delivery_id))

    async def _to_dead(self, delivery_id: UUID) -> None:
        await self.act(ActionKind.SKIP, delivery_id)

    async def _to_resolved(self, delivery_id: UUID) -> None:
        await self._to_dead(delivery_id)
        await self.act(ActionKind.RESOLVE, delivery_id)

    async def _to_archived(self, delivery_id: UUID) -> None:
        await self._to_dead(delivery_id)
        await self.store.archive(self.now + 1, self.now, 1_000)

    async def _to_cancelled(self, delivery_id: UUID) -> None:
        await self.act(ActionKind.CANCEL, delivery_id)

    async def _claim_only(self, delivery_id: UUID) -> Claim:
        claimed = {claim.delivery_id: claim for claim in await self.claim(1_000)}
        wanted = claimed.pop(delivery_id)
        await self.store.release(list(claimed.values()), self.now)
        return wanted

    # -- observation ---------------------------------------------------------------------------------------

    async def delivery(self, delivery_id: UUID) -> Delivery:
        return await self.store.get(Delivery, self.org_id, delivery_id)

    async def status(self, event_id: UUID) -> EventStatus:
        return (await self.store.get(EventView, self.org_id, event_id)).status

    async def counts(self) -> dict[DeliveryState, int]:
        """The number of deliveries in each state, without zeros."""
        return {state: number for state, number in (await count_states(self.store)).items() if number}

    def wait(self, span: Instant) -> None:
        self.now += span


WEEK = 7 * DAY
