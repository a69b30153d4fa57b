"""What may be asked of an open Doorstep, and done there: events, deliveries, endpoints, acts of operators, keys."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack
from uuid import UUID

from doorstep import bootstrap
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import Clock, Instant
from doorstep.config import Settings
from doorstep.model.act import ActKind, ActResult
from doorstep.model.attempt import Attempt
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.delivery import Delivery, HistoryLine, States
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView
from doorstep.model.org import ApiKey
from doorstep.model.worker import WorkerEntry
from doorstep.path.describing import EndpointFields, form_from
from doorstep.path.keyring import Keyring
from doorstep.path.operate import Operator
from doorstep.path.reading import Reader
from doorstep.path.registrar import Registrar
from doorstep.path.sampling import Load
from doorstep.services.heartbeat import KEPT
from doorstep.waking import Waking

T = TypeVar("T")
_WORKERS_MAX = 1_000


class Overseeing(Waking):
    """A part of class Doorstep. It may be called from any event loop; Conflict while the store is not open."""

    settings: Settings
    clock: Clock
    operator: Operator
    keyring: Keyring
    registrar: Registrar
    reading: Reader

    # -- events --------------------------------------------------------------------------------------------

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        """An event in full, with its status; one that is still in the outbox too."""
        return await self.inside(lambda: self.store.event(org_id, event_id))

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        """What an event owes, one delivery for each endpoint that takes it."""
        found = await self.inside(lambda: self.store.deliveries(org_id, event_id))
        return [self.reading.seen(delivery) for delivery in found]

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        """One delivery as it stands."""
        return self.reading.seen(await self.inside(lambda: self.store.delivery(org_id, delivery_id)))

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        """The attempt log of a delivery, oldest first."""
        return await self.inside(lambda: self.store.attempts(org_id, delivery_id))

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        """Every change of a delivery's state, oldest first."""
        return await self.inside(lambda: self.store.history(org_id, delivery_id))

    async def why_held(self, delivery: Delivery) -> str | None:
        """Why a waiting delivery is held: its endpoint is paused or disabled, or its circuit is not closed."""
        return (await self.inside(lambda: self.reading.described(delivery.org_id, [delivery])))[0].held

    # -- endpoints -----------------------------------------------------------------------------------------

    async def create_endpoint(
        self, *, name: str, org_id: UUID = DEFAULT_ORG, actor: str = "program", **fields: Unpack[EndpointFields]
    ) -> tuple[Endpoint, str]:
        """Create an endpoint; returns it with what its receiver verifies signatures with.

        For `signing="v1"` that is a shared secret, which cannot be seen again; for `"v1a"` a public key.
        """
        form = form_from(name, fields)
        return await self.inside(lambda: self.registrar.create(form, org_id, actor))

    async def endpoints(self, org_id: UUID = DEFAULT_ORG) -> list[Endpoint]:
        """All endpoints of an organization."""
        routing = await self.inside(lambda: self.store.routing())
        return [endpoint for endpoint in routing.endpoints if endpoint.org_id == org_id]

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        """One endpoint as it stands."""
        return await self.inside(lambda: self.store.endpoint(org_id, endpoint_id))

    async def circuit(self, org_id: UUID, endpoint_id: UUID) -> Circuit:
        """Whether an endpoint is being tried, and since when."""
        await self.endpoint(org_id, endpoint_id)
        return await self.inside(lambda: self.store.circuit(endpoint_id))

    async def circuit_history(self, org_id: UUID, endpoint_id: UUID, limit: int | None = None) -> list[CircuitChange]:
        """When and why the circuit opened and closed, oldest first; all that is kept, or the newest of it."""
        await self.endpoint(org_id, endpoint_id)
        return await self.inside(lambda: self.store.circuit_history(endpoint_id, limit))

    async def pause_endpoint(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> Endpoint:
        """Hold its deliveries until it is resumed."""
        return await self.inside(lambda: self.operator.pause(org_id, endpoint_id, actor, reason))

    async def resume_endpoint(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        actor: str,
        *,
        drain_per_second: float | None = None,
        skip_older_than: Instant | None = None,
        reason: str = "",
    ) -> Endpoint:
        """Let its deliveries go again: all, at a rate, or without those accepted before an instant."""
        return await self._done(
            lambda: self.operator.resume(
                org_id,
                endpoint_id,
                actor,
                drain_per_second=drain_per_second,
                skip_older_than=skip_older_than,
                reason=reason,
            )
        )

    async def delete_endpoint(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> None:
        """What still waits for it becomes dead letters."""
        await self.inside(lambda: self.operator.delete(org_id, endpoint_id, actor, reason))

    # -- operators and keys --------------------------------------------------------------------------------

    async def act(
        self,
        kind: ActKind,
        org_id: UUID,
        delivery_ids: Sequence[UUID],
        actor: str,
        reason: str = "",
        payload: bytes | None = None,
        *,
        only_in: States | None = None,
    ) -> ActResult:
        """Retry (a dead letter with another payload, if given), skip, resolve, delete or cancel deliveries; audited. Those
        that are not `only_in` these states are refused."""
        return await self._done(
            lambda: self.operator.act(kind, org_id, delivery_ids, actor, reason, payload, only_in=only_in)
        )

    async def act_on(
        self,
        kind: ActKind,
        org_id: UUID,
        delivery_id: UUID,
        actor: str,
        reason: str = "",
        payload: bytes | None = None,
        *,
        only_in: States | None = None,
    ) -> None:
        """The same to one delivery; NotFound where there is none, Conflict where its state does not allow it."""
        await self._done(
            lambda: self.operator.act_on(kind, org_id, delivery_id, actor, reason, payload, only_in=only_in)
        )

    async def authenticate(self, key: str) -> ApiKey | None:
        """The key's record if it is good; None for one that is unknown, revoked or expired."""
        return await self.inside(lambda: self.keyring.authenticate(key))

    # -- this process --------------------------------------------------------------------------------------

    def load(self) -> Load:
        """What this process has in its hands."""
        worker = self._worker
        busy = 0 if worker is None else sum(count for _, count in worker.deliverer.hand.busy_endpoints())
        return Load(accepts_waiting=self._parts.accepter.waiting, places_in_use=busy)

    async def workers(self) -> list[WorkerEntry]:
        """The processes that deliver, also for others: those that live by name, then those that were lost, the latest
        first."""
        now = self.clock.now()
        found = await self.inside(lambda: self.store.workers(now - KEPT, _WORKERS_MAX))
        living = sorted((one for one in found if not one.is_lost(now)), key=lambda one: one.name)
        return [*living, *(one for one in found if one.is_lost(now))]

    @property
    def data_path(self) -> Path | None:
        """The folder of an embedded database; None where the data is elsewhere."""
        return bootstrap.data_path(self.settings)

    async def _done(self, act: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Of what may make deliveries due at once."""

        async def acted() -> T:
            result = await act()
            self.wake_dispatcher()
            return result

        return await self.inside(acted)
