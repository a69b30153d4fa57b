"""class Doorstep: opens a store, starts a worker, and is the one facade for everything else."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

from doorstep import bootstrap
from doorstep.blocking import LoopThread
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import AnchoredClock, Clock, Instant
from doorstep.config import Settings
from doorstep.errors import ConfigError, Conflict
from doorstep.log_writer import open_log
from doorstep.model.act import ActKind, ActResult
from doorstep.model.attempt import Attempt
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.delivery import Delivery, HistoryLine
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView
from doorstep.model.org import ApiKey
from doorstep.model.retry_policy import RetryPolicy
from doorstep.model.submission import Receipt, Verdict
from doorstep.path.accept import KEY_CONFLICT, Accepter, Draft
from doorstep.path.bulk import BulkDesk
from doorstep.path.bulk_selection import Chooser
from doorstep.path.bulk_steps import BulkStepper
from doorstep.path.declare import Declaration, declare
from doorstep.path.describing import EndpointFields, HandlerFields, form_from
from doorstep.path.directory import Directory
from doorstep.path.drafting import Options, draft_of
from doorstep.path.enrol import Terms
from doorstep.path.keyring import Keyring
from doorstep.path.operate import Operator
from doorstep.path.reading import Reader
from doorstep.path.registrar import Registrar
from doorstep.path.replay import Replayer
from doorstep.path.steward import Steward
from doorstep.path.tuning import Tuning
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.worker import Worker
from doorstep.stopping import run_until_stopped
from doorstep.stores.opening import store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry import Telemetry
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.handler_transport import Handler, HandlerTransport
from doorstep.wire.http_transport import HttpTransport

T = TypeVar("T")
H = TypeVar("H", bound=Handler)


class Doorstep:
    """Give it an event, and it gets to where it must go.

    doorstep = Doorstep("sqlite:///app.db")

    @doorstep.handler("order.*")
    async def ship(event):
        print(event.json())

    async with doorstep:
        await doorstep.send("order.paid", {"order": 1})
    """

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        telemetry: Telemetry | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings if isinstance(settings, Settings) else _settings(settings)
        self.telemetry = telemetry or Telemetry()
        self.clock: Clock = clock or AnchoredClock()
        self.store = store or store_from_url(self.settings.database_url)
        self.tuning = tuning_of(self.settings)
        self.guard = AddressGuard(self.settings.allow_addresses, allow_http=self.settings.allow_http)
        self.handlers: dict[str, Handler] = {}
        """The functions that endpoints may name as their handler."""
        self.declarations: list[Declaration] = []
        """The endpoints that the program declares: made, or brought up to date, at each start."""
        self.generated_admin_key: str | None = None
        """The bootstrap key, only where this start had to make one: shown once, never kept."""
        self._worker: Worker | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        """The process and the event loop in which the store was opened."""
        self._thread = LoopThread()
        self._opening = threading.Lock()

    # -- life ----------------------------------------------------------------------------------------------

    async def open(self, *, migrate: bool = True) -> None:
        """Open the store and make what a first start needs. Events can be sent from here on."""
        self._sealer = bootstrap.sealer_for(self.settings)
        if migrate:
            bootstrap.make_folder(self.settings)
            await self.store.migrate()
        await self.store.open()
        if self.store.capabilities.many_machines and isinstance(self.clock, AnchoredClock):
            self.clock.follow(await self.store.time())
        self.generated_admin_key = await bootstrap.prepare(self.store, self.settings, self.clock.now())
        self.directory = Directory(self.store, self._sealer, self.tuning)
        await self.directory.reload()
        self._assemble()
        await declare(self.store, self.directory, self.clock, self._terms(), self.declarations)
        self._home = os.getpid(), asyncio.get_running_loop()

    def _assemble(self) -> None:
        """Everything that works on an open store."""
        shared = (self.store, self.directory, self.clock, self.tuning, self.telemetry)
        self._accepter = Accepter(*shared, wake=self._wake)
        self.operator = Operator(*shared)
        self.keyring = Keyring(self.store, self.clock)
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
        settings = self.settings
        return Terms(self._sealer, self.guard, settings.timeout_seconds_max, self.tuning.policy, settings.endpoints_max)

    def start(self) -> None:
        """Start delivering, in this event loop."""
        transport = HttpTransport(self.guard, self.clock, connections_max=self.tuning.places)
        self._worker = Worker(
            self.store,
            self.directory,
            transport,
            HandlerTransport(self.clock, self.handlers, threads_max=self.tuning.places),
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
        self._home = None
        await self.store.close()

    async def __aenter__(self) -> Self:
        await self.open()
        self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def run(self) -> None:
        """Deliver until the program is told to stop, by Ctrl-C or SIGTERM; writes the log that `doorstep worker` does."""
        log = open_log(self.settings.log_level, self.settings.log_format)
        self.telemetry.subscribe(log)
        try:
            run_until_stopped(self._run_until)
        finally:
            log.close()

    async def _run_until(self, stop: asyncio.Event) -> None:
        async with self:
            await stop.wait()

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """For web frameworks that run one: `FastAPI(lifespan=doorstep.lifespan)`."""
        async with self:
            yield

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

    async def send(self, event_type: str, payload: object, **options: Unpack[Options]) -> Receipt:
        """Accept one event. When this returns, it is on stable storage with one delivery per matching endpoint.

        Bytes must be JSON and are delivered as they are; anything else is encoded as JSON once, now.
        """
        receipt = (await self.send_many([draft_of(event_type, payload, DEFAULT_ORG, options)]))[0]
        if receipt.verdict is Verdict.CONFLICT:
            raise Conflict(KEY_CONFLICT)
        return receipt

    def send_sync(self, event_type: str, payload: object, **options: Unpack[Options]) -> Receipt:
        """`send` for programs without an event loop, and for plain handlers. Opens the store when it is first used."""
        return self._wait(lambda: self.send(event_type, payload, **options))

    def close_sync(self) -> None:
        """Close what `send_sync` opened. A program may also simply end: what was sent is on stable storage."""
        if self._home is not None and self._home[0] == os.getpid():
            self._thread.run(self.close(), self._home[1])

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
        self, *, name: str, org_id: UUID = DEFAULT_ORG, actor: str = "program", **fields: Unpack[EndpointFields]
    ) -> tuple[Endpoint, str]:
        """Create an endpoint; returns it with what its receiver verifies signatures with.

        For `signing="v1"` that is a shared secret, which cannot be seen again; for `"v1a"` a public key.
        """
        return await self.registrar.create(form_from(name, fields), org_id, actor)

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

    # -- handlers ------------------------------------------------------------------------------------------

    def handler(
        self,
        *event_types: str,
        name: str | None = None,
        org_id: UUID = DEFAULT_ORG,
        **fields: Unpack[HandlerFields],
    ) -> Callable[[H], H]:
        """Declare that a function takes the events of these types. It becomes an endpoint, named like the function.

        A function that returns has delivered; see `Transient` and `Permanent` for the rest. The same event may come
        again. Plain functions run in threads, async ones in the event loop.
        """

        def declare_handler(function: H) -> H:
            endpoint = name or str(getattr(function, "__name__", ""))
            described = {"handler": endpoint, "event_types": event_types, **fields}
            self._declare(Declaration(form_from(endpoint, described), org_id))
            self.register(endpoint, function)
            return function

        return declare_handler

    def _declare(self, declaration: Declaration) -> None:
        name = declaration.form.name
        if any(one.form.name == name and one.org_id == declaration.org_id for one in self.declarations):
            raise ConfigError(f"two handlers are named {name!r}; give one of them another name=")
        self.declarations.append(declaration)

    def register(self, name: str, handler: Handler) -> None:
        """Make a Python callable reachable for endpoints that name it as their handler; a later one replaces it."""
        self.handlers[name] = handler

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

    # -- programs without an event loop --------------------------------------------------------------------

    def _wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something on the open store, in the event loop that it was opened in: the program's, or one of ours."""
        with self._opening:
            if self._home is None or self._home[0] != os.getpid():
                self._thread.run(self._open_here())
        assert self._home is not None, "it was opened just now"
        return self._thread.run(work(), self._home[1])

    async def _open_here(self) -> None:
        if self._home is not None:  # we were forked, and the connections of the store are our parent's
            self._parents_store = self.store
            self.store = store_from_url(self.settings.database_url)
        await self.open()


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


def _settings(database_url: str | None) -> Settings:
    return Settings() if database_url is None else Settings(database_url=database_url)
