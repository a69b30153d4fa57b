"""class Doorstep: opens a store, starts a worker, and is the one facade for everything else."""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self
from uuid import UUID

import msgspec

from doorstep import bootstrap
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import AnchoredClock, Instant
from doorstep.config import Settings
from doorstep.errors import Conflict
from doorstep.model.act import ActKind, ActResult
from doorstep.model.attempt import Attempt
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.delivery import Delivery, HistoryLine
from doorstep.model.endpoint import CircuitRules, Endpoint
from doorstep.model.event import EventView
from doorstep.model.org import ApiKey
from doorstep.model.retry_policy import RetryPolicy
from doorstep.model.submission import Receipt, Verdict
from doorstep.path.accept import KEY_CONFLICT, Accepter, Draft
from doorstep.path.bulk import BulkDesk
from doorstep.path.bulk_selection import Chooser
from doorstep.path.bulk_steps import BulkStepper
from doorstep.path.directory import Directory
from doorstep.path.enrol import EndpointForm, PolicyForm, Terms
from doorstep.path.keyring import Keyring
from doorstep.path.operate import Operator
from doorstep.path.reading import Reader
from doorstep.path.registrar import Registrar
from doorstep.path.replay import Replayer
from doorstep.path.steward import Steward
from doorstep.path.tuning import Tuning
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.worker import Worker
from doorstep.stores.opening import store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry import Telemetry
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.handler_transport import Handler, HandlerTransport
from doorstep.wire.http_transport import HttpTransport


class Doorstep:
    """Give it an event, and it gets to where it must go.

    async with Doorstep("sqlite:///app.db") as doorstep:
        await doorstep.create_endpoint(name="shop", url="https://shop.example/hook", event_types=("order.*",))
        await doorstep.send("order.paid", {"order": 1})
    """

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        telemetry: Telemetry | None = None,
        store: Store | None = None,
        clock: AnchoredClock | None = None,
    ) -> None:
        self.settings = settings if isinstance(settings, Settings) else _settings(settings)
        self.telemetry = telemetry or Telemetry()
        self.clock = clock or AnchoredClock()
        self.store = store or store_from_url(self.settings.database_url)
        self.tuning = tuning_of(self.settings)
        self.guard = AddressGuard(self.settings.allow_addresses, allow_http=self.settings.allow_http)
        self.handlers = HandlerTransport(self.clock, threads_max=self.tuning.places)
        self.generated_admin_key: str | None = None
        """The bootstrap key, only where this start had to make one: shown once, never kept."""
        self.keyring = Keyring(self.store, self.clock)
        self._worker: Worker | None = None

    # -- life ----------------------------------------------------------------------------------------------

    async def open(self, *, migrate: bool = True) -> None:
        """Open the store and make what a first start needs. Events can be sent from here on."""
        self._sealer = bootstrap.sealer_for(self.settings)
        if migrate:
            bootstrap.make_folder(self.settings)
            await self.store.migrate()
        await self.store.open()
        if self.store.capabilities.many_machines:
            self.clock.follow(await self.store.time())
        self.generated_admin_key = await bootstrap.prepare(self.store, self.settings, self.clock.now())
        self.directory = Directory(self.store, self._sealer, self.tuning)
        await self.directory.reload()
        shared = (self.store, self.directory, self.clock, self.tuning, self.telemetry)
        self._accepter = Accepter(*shared, wake=self._wake)
        self.operator = Operator(*shared)
        self.registrar = Registrar(self.store, self.directory, self.clock, self._terms())
        replayer = Replayer(self.store, self._accepter)
        chooser = Chooser(self.store, self.clock, self.tuning)
        self.bulk = BulkDesk(self.store, chooser, self.clock, self._wake_bulk_runner)
        stepper = BulkStepper(self.store, chooser, replayer, self.clock, self.telemetry, self._wake)
        self._bulk_runner = BulkRunner(self.store, stepper)
        self.steward = Steward(
            self.store,
            self.clock,
            self._accepter,
            self.operator,
            replayer,
            self.telemetry,
            self._wake,
        )
        self.reading = Reader(self.store, self.directory, self.clock, self.tuning)

    def _terms(self) -> Terms:
        return Terms(self._sealer, self.guard, self.settings.timeout_seconds_max, self.tuning.policy)

    def start(self) -> None:
        """Start delivering, in this event loop."""
        transport = HttpTransport(self.guard, self.clock, connections_max=self.tuning.places)
        self._worker = Worker(
            self.store,
            self.directory,
            transport,
            self.handlers,
            self.clock,
            random.random,
            self.tuning,
            self.telemetry,
            worker_name(),
            also=(self._bulk_runner,),
        )
        self.store.on_wakeup(self._wake)
        self._worker.start()

    async def close(self) -> None:
        """Stop delivering (finishing or handing back what is under way) and close the store."""
        if self._worker is not None:
            await self._worker.stop()
            self._worker = None
        await self.store.close()

    async def __aenter__(self) -> Self:
        await self.open()
        self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _wake(self) -> None:
        if self._worker is not None:
            self._worker.wake()

    def _wake_bulk_runner(self) -> None:
        """A bulk operation was begun, or has its orders."""
        if self._worker is not None:
            self._bulk_runner.wake.set()

    @property
    def data_path(self) -> Path | None:
        return bootstrap.data_path(self.settings)

    # -- events --------------------------------------------------------------------------------------------

    async def send(
        self,
        event_type: str,
        payload: object,
        *,
        org_id: UUID = DEFAULT_ORG,
        endpoint_ids: Sequence[UUID] | None = None,
        deliver_at: Instant | None = None,
        expires_at: Instant | None = None,
        metadata: bytes = b"{}",
        ordering_key: str | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
    ) -> Receipt:
        """Accept one event. When this returns, it is on stable storage with one delivery per matching endpoint.

        Bytes must be JSON and are delivered as they are; anything else is encoded as JSON once, now.
        """
        draft = Draft(
            org_id=org_id,
            event_type=event_type,
            payload=payload if isinstance(payload, bytes) else msgspec.json.encode(payload),
            correlation_id=correlation_id or new_correlation_id(),
            endpoint_ids=None if endpoint_ids is None else tuple(endpoint_ids),
            deliver_at=deliver_at,
            expires_at=expires_at,
            metadata=metadata,
            ordering_key=ordering_key,
            idempotency_key=idempotency_key,
        )
        receipt = (await self.send_many([draft]))[0]
        if receipt.verdict is Verdict.CONFLICT:
            raise Conflict(KEY_CONFLICT)
        return receipt

    async def send_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Accept a batch in one transaction; see Accepter.accept."""
        return await self._accepter.accept(drafts)

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        return await self.store.event(org_id, event_id)

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        return [self.reading.seen(delivery) for delivery in await self.store.deliveries(org_id, event_id)]

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        return self.reading.seen(await self.store.delivery(org_id, delivery_id))

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        return await self.store.attempts(org_id, delivery_id)

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        return await self.store.history(org_id, delivery_id)

    async def why_held(self, delivery: Delivery) -> str | None:
        """Why a waiting delivery is held: its endpoint is paused or disabled, or its circuit is not closed."""
        return (await self.reading.described(delivery.org_id, [delivery]))[0].held

    # -- endpoints -----------------------------------------------------------------------------------------

    async def create_endpoint(
        self,
        *,
        name: str,
        org_id: UUID = DEFAULT_ORG,
        url: str | None = None,
        handler: str | None = None,
        event_types: Sequence[str] = ("*",),
        policy: PolicyForm | None = None,
        policy_by_event_type: Mapping[str, PolicyForm] | None = None,
        timeout_seconds: float | None = None,
        concurrency_max: int | None = None,
        rate_per_second: float | None = None,
        headers: Mapping[str, str] | None = None,
        retry_on: Sequence[str] = (),
        give_up_on: Sequence[str] = (),
        code_map: Mapping[str, str] | None = None,
        circuit: CircuitRules | None = None,
        envelope: bool = False,
        signing: str = "v1",
        actor: str = "program",
    ) -> tuple[Endpoint, str]:
        """Create an endpoint; returns it with what its receiver verifies signatures with.

        For `signing="v1"` that is a shared secret, which cannot be seen again; for `"v1a"` a public key.
        """
        form = EndpointForm(
            name=name,
            url=url,
            handler=handler,
            event_types=tuple(event_types),
            policy=policy,
            policy_by_event_type=dict(policy_by_event_type or {}),
            timeout_seconds=timeout_seconds,
            concurrency_max=concurrency_max,
            rate_per_second=rate_per_second,
            headers=dict(headers or {}),
            retry_on=tuple(retry_on),
            give_up_on=tuple(give_up_on),
            code_map=dict(code_map or {}),
            circuit=circuit or CircuitRules(),
            envelope=envelope,
            signing=signing,
        )
        return await self.registrar.create(form, org_id, actor)

    async def endpoints(self, org_id: UUID = DEFAULT_ORG) -> list[Endpoint]:
        routing = await self.store.routing()
        return [endpoint for endpoint in routing.endpoints if endpoint.org_id == org_id]

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        return await self.store.endpoint(org_id, endpoint_id)

    async def circuit(self, org_id: UUID, endpoint_id: UUID) -> Circuit:
        await self.store.endpoint(org_id, endpoint_id)
        return await self.store.circuit(endpoint_id)

    async def circuit_history(self, org_id: UUID, endpoint_id: UUID) -> list[CircuitChange]:
        """When and why the circuit opened and closed, oldest first."""
        await self.store.endpoint(org_id, endpoint_id)
        return await self.store.circuit_history(endpoint_id)

    async def pause_endpoint(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> Endpoint:
        """Hold its deliveries until it is resumed."""
        return await self.operator.pause(org_id, endpoint_id, actor, reason)

    async def resume_endpoint(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        actor: str,
        *,
        drain_per_second: float | None = None,
        skip_older_than: Instant | None = None,
    ) -> Endpoint:
        """Let its deliveries go again: all, at a rate, or without those accepted before an instant."""
        endpoint = await self.operator.resume(
            org_id, endpoint_id, actor, drain_per_second=drain_per_second, skip_older_than=skip_older_than
        )
        self._wake()
        return endpoint

    async def delete_endpoint(self, org_id: UUID, endpoint_id: UUID, actor: str) -> None:
        """What still waits for it becomes dead letters."""
        await self.operator.delete(org_id, endpoint_id, actor)

    def register(self, name: str, handler: Handler) -> None:
        """Make a Python callable reachable for endpoints that name it as their handler."""
        self.handlers.register(name, handler)

    # -- operators -----------------------------------------------------------------------------------------

    async def act(
        self,
        kind: ActKind,
        org_id: UUID,
        delivery_ids: Sequence[UUID],
        actor: str,
        reason: str = "",
        payload: bytes | None = None,
    ) -> ActResult:
        """Retry (a dead letter with another payload, if given), skip, resolve, delete or cancel deliveries; audited."""
        result = await self.operator.act(kind, org_id, delivery_ids, actor, reason, payload)
        self._wake()
        return result

    # -- keys ----------------------------------------------------------------------------------------------

    async def authenticate(self, key: str) -> ApiKey | None:
        """The key's record if it is good; None for one that is unknown, revoked or expired."""
        return await self.keyring.authenticate(key)


def tuning_of(settings: Settings) -> Tuning:
    """The engine's numbers, from the settings."""
    return Tuning(
        lease_seconds=settings.lease_seconds,
        timeout_seconds=settings.timeout_seconds,
        places=settings.concurrency,
        policy=RetryPolicy(settings.retry_delays, name="standard"),
        retries_max=settings.max_retry_attempts,
        grace_seconds=settings.grace_seconds,
        payload_bytes_max=settings.payload_bytes_max,
        retention_days=settings.retention_days,
        archive_after_days=settings.retention_days,
        inbox_retention_days=settings.inbox_retention_days,
        audit_retention_days=settings.audit_retention_days,
    )


def worker_name() -> str:
    """Tells workers apart in logs and leases: machine, process, and a random end for containers that share both."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(3)}"


def new_correlation_id() -> str:
    return secrets.token_hex(16)


def _settings(database_url: str | None) -> Settings:
    return Settings() if database_url is None else Settings(database_url=database_url)
