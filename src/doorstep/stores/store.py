"""The store: every verb that Doorstep needs of a database. Read this first.

Four verbs carry the guarantees: `accept`, `claim_due`, `settle`, `release`. Rules for all of them:

- Each call is one transaction: all of it is kept, or none.
- Time is an argument. A store never asks a clock and never decides; it writes what was decided, if it may.
- No method is optional. What a database cannot do alike is a declared `Capabilities` field.
- A store that cannot write or be reached raises StoreUnavailable, and works again by itself later.

One contract suite (tests/contract) runs on every store; stores/memory.py is the reference model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.act import Act, ActResult, AuditLine
from doorstep.model.attempt import Attempt
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.claim import Claim, Lane, Quota
from doorstep.model.delivery import Delivery, DeliveryState, HistoryLine
from doorstep.model.endpoint import Endpoint, Routing
from doorstep.model.event import EventView
from doorstep.model.noun import Noun
from doorstep.model.org import ApiKey, Org
from doorstep.model.settlement import Settled, Settlement, StatusChange
from doorstep.model.submission import Receipt, Submission


class Capabilities(Noun, frozen=True):
    """Where stores differ, said openly."""

    durable: bool
    """What was accepted survives a crash of the process."""
    many_machines: bool
    pushes_wakeups: bool
    """Work accepted by other processes is announced; otherwise it must be looked for."""


class Buried(Noun, frozen=True):
    """The deliveries that `bury` moved to the dead letters, and the events that failed with them."""

    delivery_ids: tuple[UUID, ...] = ()
    changes: tuple[StatusChange, ...] = ()


class Cleaned(Noun, frozen=True):
    """How many rows one round of cleaning removed."""

    deliveries: int = 0
    attempts: int = 0
    events: int = 0
    idempotency_keys: int = 0

    @property
    def total(self) -> int:
        return self.deliveries + self.attempts + self.events + self.idempotency_keys


class Store(Protocol):
    capabilities: Capabilities

    # -- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. The schema must be current (`migrate`); otherwise this raises ConfigError saying so."""

    async def close(self) -> None: ...

    async def migrate(self) -> None:
        """Bring the schema to the current version; harmless when it is."""

    async def time(self) -> Instant:
        """The store's own idea of the time, which all processes sharing it follow."""

    def on_wakeup(self, wake: Callable[[], None]) -> None:
        """Call `wake` (from the event loop) when other processes may have accepted work. A hint: may be lost."""

    # -- the path ------------------------------------------------------------------------------------------

    async def accept(self, submissions: Sequence[Submission], routing_version: int, now: Instant) -> list[Receipt]:
        """Keep events with their deliveries and idempotency keys, durably; one receipt each, in order.

        Raises StaleRouting, keeping nothing, if endpoints changed since `routing_version` was read. An
        idempotency key counts for 24 hours within its organization; two submissions of one call may share one.
        """

    async def lanes(self, now: Instant) -> list[Lane]:
        """One lane for each endpoint that has waiting deliveries, due or not, in the order of their due times.

        Costs one index seek an endpoint, however many deliveries wait behind it.
        """

    async def claim_due(
        self, quotas: Sequence[Quota], now: Instant, lease_until: Instant, worker: str, forced_max: int = 0
    ) -> list[Claim]:
        """Take due deliveries, oldest first within each quota, after up to `forced_max` forced ones.

        Forced deliveries (an operator's retry) are taken whatever the quotas say, as long as their endpoint is
        active. Every claim counts an attempt, takes the next token, and moves its event from received to queued.
        """

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> Settled:
        """Write the results of claims: attempt row, new state, event status and history, together.

        A settlement whose token is no longer the newest, or whose delivery is no longer in progress, is late:
        its attempt row is kept (marked late) and nothing else changes.
        """

    async def release(self, claims: Sequence[Claim], now: Instant) -> list[Claim]:
        """Hand back claims that were never tried: due again at once, attempt uncounted. Returns the released.

        The event stays queued: it was picked up. A claim that is no longer the newest is left alone.
        """

    async def expired(self, now: Instant, limit: int) -> list[Claim]:
        """Claims whose lease has ended unsettled, oldest first: their workers are lost or stuck."""

    # -- endpoints and circuits ----------------------------------------------------------------------------

    async def routing(self) -> Routing:
        """All endpoints that are not deleted, with the version of this picture."""

    async def routing_version(self) -> int: ...

    async def put_endpoint(self, endpoint: Endpoint) -> None:
        """Create or replace an endpoint, and bump the routing version. NotFound for an unknown organization."""

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        """One endpoint, deleted ones too; NotFound otherwise."""

    async def circuit(self, endpoint_id: UUID) -> Circuit: ...

    async def put_circuit(self, circuit: Circuit, expected_version: int, reason: str = "") -> bool:
        """Write a circuit computed from `expected_version` (stored as version + 1); False if another was faster.

        A change of state is added to the circuit's history with `reason`.
        """

    async def circuit_history(self, endpoint_id: UUID) -> list[CircuitChange]: ...

    async def bury(
        self,
        endpoint_id: UUID,
        code: str,
        reason: str,
        now: Instant,
        limit: int,
        created_before: Instant | None = None,
    ) -> Buried:
        """Move up to `limit` waiting deliveries of an endpoint to the dead letters, without a try."""

    # -- operators -----------------------------------------------------------------------------------------

    async def act(self, act: Act) -> tuple[ActResult, list[StatusChange]]:
        """Do what an operator said to each delivery that allows it, and audit it, in one transaction."""

    async def acknowledge(self, org_id: UUID, event_id: UUID, now: Instant) -> StatusChange:
        """An inbox consumer has the event: received becomes delivered. Conflict if push endpoints take it."""

    async def add_audit(self, line: AuditLine) -> None: ...

    async def audit(self, org_id: UUID, limit: int = 100) -> list[AuditLine]:
        """The newest lines first."""

    # -- reading -------------------------------------------------------------------------------------------

    async def event(self, org_id: UUID, event_id: UUID) -> EventView: ...

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        """The deliveries of an event in the order of their creation; none for an unknown event."""

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery: ...

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        """The attempt log in order; it outlives the deletion of a dead letter."""

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        """Every transition in order, the acceptance first."""

    async def tally(self) -> dict[DeliveryState, int]:
        """How many deliveries are in each state, counted row by row: for tests and reports, not for hot paths."""

    # -- keeping house -------------------------------------------------------------------------------------

    async def archive(self, dead_before: Instant, now: Instant, limit: int) -> int:
        """Dead letters untouched since `dead_before` become archived; returns how many."""

    async def clean(self, settled_before: Instant, now: Instant, limit: int) -> Cleaned:
        """Remove up to `limit` settled deliveries (delivered, resolved, cancelled, deleted), with their attempts
        and history, and events of which nothing is left, and expired idempotency keys. Dead letters stay."""

    # -- organizations and keys ----------------------------------------------------------------------------

    async def put_org(self, org: Org) -> None: ...

    async def orgs(self) -> list[Org]: ...

    async def put_key(self, key: ApiKey) -> None: ...

    async def find_key(self, digest: bytes) -> ApiKey | None:
        """The key with this digest, revoked and expired ones too."""
