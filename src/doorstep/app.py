"""class Doorstep: opens a store, starts a worker, and is the one facade for everything else."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack, overload
from uuid import UUID

from doorstep import bootstrap
from doorstep.bootstrap import DEFAULT_ORG, tuning_of
from doorstep.clock import AnchoredClock, Clock, Instant
from doorstep.config import Settings
from doorstep.declaring import Declaring
from doorstep.errors import Conflict
from doorstep.log_writer import open_log
from doorstep.model.act import ActKind, ActResult
from doorstep.model.attempt import Attempt
from doorstep.model.circuit import Circuit, CircuitChange
from doorstep.model.delivery import Delivery, HistoryLine
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView
from doorstep.model.org import ApiKey
from doorstep.model.posting import Posted
from doorstep.model.submission import Receipt, Verdict
from doorstep.path.accept import KEY_CONFLICT, Accepter, Draft
from doorstep.path.batches import Batches
from doorstep.path.bulk import BulkDesk
from doorstep.path.bulk_selection import Chooser
from doorstep.path.bulk_steps import BulkStepper
from doorstep.path.declare import declare
from doorstep.path.describing import EndpointFields, form_from
from doorstep.path.directory import Directory
from doorstep.path.drafting import Options, draft_of
from doorstep.path.enrol import Terms
from doorstep.path.forward import Forward
from doorstep.path.keyring import Keyring
from doorstep.path.operate import Operator
from doorstep.path.post import post
from doorstep.path.reading import Reader
from doorstep.path.registrar import Registrar
from doorstep.path.replay import Replayer
from doorstep.path.steward import Steward
from doorstep.policy.retry import Random
from doorstep.residence import Residence
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.forwarder import Forwarder
from doorstep.services.herald import Herald, Mourner
from doorstep.services.pipeline_keeper import PipelineKeeper
from doorstep.services.worker import Worker, worker_name
from doorstep.stopping import run_until_stopped
from doorstep.stores.foreign import AsyncConnection
from doorstep.stores.opening import store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry import Telemetry
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.handler_transport import Handler, HandlerTransport
from doorstep.wire.http_transport import HttpTransport
from doorstep.wire.isolation.pool import Isolation
from doorstep.wire.transport import Transport

_TELL_SECONDS = 0.01
"""How often other processes are told at most that something was posted here."""

T = TypeVar("T")
H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=Mourner)


class Doorstep(Residence, Declaring):
    """Give it an event, and it gets to where it must go.

        doorstep = Doorstep("sqlite:///app.db")

        @doorstep.handler("order.*")
        async def ship(event):
            print(event.json())

        async with doorstep:
            await doorstep.send("order.paid", {"order": 1})

    Events may be sent from any thread and any event loop; programs without one use `send_sync`.
    """

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        telemetry: Telemetry | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
    ) -> None:
        Declaring.__init__(self)
        Residence.__init__(self, lambda: store or store_from_url(self.settings.database_url))
        self.settings = settings if isinstance(settings, Settings) else _settings(settings)
        self.telemetry = telemetry or Telemetry()
        self.clock: Clock = clock or AnchoredClock()
        self.store = store or store_from_url(self.settings.database_url)
        self.tuning = tuning_of(self.settings)
        self.guard = AddressGuard(self.settings.allow_addresses, allow_http=self.settings.allow_http)
        self.batches = Batches(self, DEFAULT_ORG)
        """Batches by status, their carrier log, and resubmission."""
        self.generated_admin_key: str | None = None
        """The bootstrap key, only where this start had to make one: shown once, never kept."""
        self._worker: Worker | None = None
        self._telling: asyncio.TimerHandle | None = None

    # -- life ----------------------------------------------------------------------------------------------

    async def open(self, *, migrate: bool = True) -> None:
        """Open the store and make what a first start needs; harmless where it is open. Events can be sent from here on."""
        if not await self._move_in():
            return
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
        self._herald = Herald(self._mourners, self.store, self.directory, self.clock, self.telemetry)
        self._bulk_runner = BulkRunner(self.store, stepper, self.clock)
        forward = Forward(self.store, self._accepter, self.clock, self.telemetry, worker_name())
        self._forwarder = Forwarder(forward, noticed=self.store.capabilities.notices_postings)
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
        self._keeper = PipelineKeeper(list(self.pipelines.values()), self.store, self.clock, self.telemetry)

    def _terms(self) -> Terms:
        settings = self.settings
        return Terms(self._sealer, self.guard, settings.timeout_seconds_max, self.tuning.policy, settings.endpoints_max)

    def start(self) -> None:
        """Start delivering, in this event loop."""
        http = HttpTransport(self.guard, self.clock, connections_max=self.tuning.places)
        self._worker = self.make_worker(http, random.random, self._isolations())
        self.store.on_wakeup(self._wake)
        self.store.on_posted(self._forwarder.hint)
        self._worker.start()

    def make_worker(self, http: Transport, chance: Random, isolated: Mapping[str, Isolation] = {}) -> Worker:
        """A worker of an opened Doorstep, not started: for whoever drives it by himself, as the sandbox does."""
        return Worker(
            self.store,
            self.directory,
            http,
            HandlerTransport(self.clock, self.handlers, threads_max=self.tuning.places, isolated=isolated),
            self.clock,
            chance,
            self.tuning,
            self.telemetry,
            worker_name(),
            also=(self._herald, self._bulk_runner, self._forwarder, *([self._keeper] if self.pipelines else [])),
        )

    async def close(self) -> None:
        """Stop delivering (finishing or handing back what is under way) and close the store."""
        if self._worker is not None:
            await self._worker.stop()
            self._worker = None
            await self._herald.run_once()  # of what died in the last moment
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

    def wake(self) -> None:
        """There may be something in the outbox: a hint, from any thread. Without it, it is found a little later."""
        if self._home is not None and self._home[0] == os.getpid():
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                self._home[1].call_soon_threadsafe(self._hint)

    def _hint(self) -> None:
        """To our own forwarder; if none is running here, to those of other processes, once for all of a moment."""
        loop = asyncio.get_running_loop()
        if self._worker is not None:
            self._forwarder.hint()
        elif self._telling is None or self._telling.when() <= loop.time():
            self._telling = loop.call_later(_TELL_SECONDS, self.store.tell_posted)

    def _wake_bulk_runner(self) -> None:
        """A bulk operation was begun, or has its orders."""
        if self._worker is not None:
            self._bulk_runner.wake.set()

    @property
    def data_path(self) -> Path | None:
        """The folder of an embedded database; None where the data is elsewhere."""
        return bootstrap.data_path(self.settings)

    # -- events --------------------------------------------------------------------------------------------

    @overload
    def send(
        self, event_type: str, payload: object, *, connection: None = None, **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Receipt]: ...
    @overload
    def send(  # type: ignore[overload-overlap]  # every connection is an object, the asyncio ones come first
        self, event_type: str, payload: object, *, connection: AsyncConnection, **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Posted]: ...
    @overload
    def send(self, event_type: str, payload: object, *, connection: object, **options: Unpack[Options]) -> Posted: ...

    def send(
        self, event_type: str, payload: object, *, connection: object = None, **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Receipt] | Coroutine[Any, Any, Posted] | Posted:
        """Accept one event. When it has been awaited, it is on stable storage with one delivery per matching endpoint.

        With a `connection` of your own (or a session of SQLAlchemy) it is inserted there, into the outbox, and exists
        if and only if your transaction commits; see docs/outbox.md. Only an asyncio connection is to be awaited then.

        Bytes must be JSON and are delivered as they are; anything else is encoded as JSON once, now. A Doorstep that
        is not open is opened by the first event.
        """
        if connection is None:
            return self._send(event_type, payload, options)
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        return post(draft, connection, self.store, self.clock.now(), self.tuning.payload_bytes_max, self.wake)

    async def _send(self, event_type: str, payload: object, options: Options) -> Receipt:
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        receipt = (await self.at_home(lambda: self.send_many([draft])))[0]
        if receipt.verdict is Verdict.CONFLICT:
            raise Conflict(KEY_CONFLICT)
        return receipt

    def send_sync(self, event_type: str, payload: object, **options: Unpack[Options]) -> Receipt:
        """`send` for programs without an event loop, and for plain handlers."""
        return self.wait(lambda: self.send(event_type, payload, **options))

    def close_sync(self) -> None:
        """Close what `send_sync` opened. A program may also simply end: what was sent is on stable storage."""
        if loop := self._living_home():
            self._thread.run(self.close(), loop)

    async def send_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Accept a batch in one transaction; see Accepter.accept."""
        return await self._accepter.accept(drafts)

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        """An event in full, with its status; one that is still in the outbox too."""
        return await self.store.event(org_id, event_id)

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        """What an event owes, one delivery for each endpoint that takes it."""
        return [self.reading.seen(delivery) for delivery in await self.store.deliveries(org_id, event_id)]

    async def delivery(self, org_id: UUID, delivery_id: UUID) -> Delivery:
        """One delivery as it stands."""
        return self.reading.seen(await self.store.delivery(org_id, delivery_id))

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        """The attempt log of a delivery, oldest first."""
        return await self.store.attempts(org_id, delivery_id)

    async def history(self, org_id: UUID, delivery_id: UUID) -> list[HistoryLine]:
        """Every change of a delivery's state, oldest first."""
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
        """All endpoints of an organization."""
        routing = await self.store.routing()
        return [endpoint for endpoint in routing.endpoints if endpoint.org_id == org_id]

    async def endpoint(self, org_id: UUID, endpoint_id: UUID) -> Endpoint:
        """One endpoint as it stands."""
        return await self.store.endpoint(org_id, endpoint_id)

    async def circuit(self, org_id: UUID, endpoint_id: UUID) -> Circuit:
        """Whether an endpoint is being tried, and since when."""
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


def _settings(database_url: str | None) -> Settings:
    return Settings() if database_url is None else Settings(database_url=database_url)
