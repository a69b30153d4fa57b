"""class Doorstep: opens a store, starts a worker, and is the one facade for everything else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, Unpack, overload

from doorstep import bootstrap
from doorstep.assembly import Ground, Hints, assembled
from doorstep.bootstrap import DEFAULT_ORG, tuning_of
from doorstep.clock import AnchoredClock, Clock, to_iso
from doorstep.config import Settings, secrets_of
from doorstep.declaring import Declaring
from doorstep.errors import Conflict, InvalidInput, StoreError
from doorstep.exporting import begin_tracing, end_tracing, meters
from doorstep.model.posting import Posted
from doorstep.model.submission import Receipt, Verdict
from doorstep.overseeing import Overseeing
from doorstep.path.accept import KEY_CONFLICT, Draft
from doorstep.path.batches import Batches
from doorstep.path.declare import declare
from doorstep.path.directory import Directory
from doorstep.path.drafting import Options, draft_of
from doorstep.path.outbox import Outbox
from doorstep.path.post import post
from doorstep.policy.retry import Random
from doorstep.presence import Holder, Presence
from doorstep.sealing import Sealer
from doorstep.services.heartbeat import Heartbeat
from doorstep.services.worker import Worker, worker_name
from doorstep.stopping import run_until_stopped
from doorstep.stores.foreign import AsyncConnection, Omitted
from doorstep.stores.opening import store_from_url
from doorstep.stores.store import Store, Task
from doorstep.telemetry.facts import Notice, Telemetry
from doorstep.telemetry.log_writer import log_of_a_guest
from doorstep.telemetry.logs import Level
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.handler_transport import HandlerTransport
from doorstep.wire.http_transport import HttpTransport
from doorstep.wire.isolation.pool import Isolation
from doorstep.wire.span_exporter import SpanExporter
from doorstep.wire.transport import Transport

_DELIVERS = "this Doorstep delivers already; it is started once, by the outermost `async with` or `start`"


class Doorstep(Overseeing, Declaring):
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
        Overseeing.__init__(self, lambda: store or store_from_url(self.settings.database_url))
        self.settings = bootstrap.pinned(settings if isinstance(settings, Settings) else _settings(settings))
        self.telemetry = telemetry or Telemetry()
        self.clock: Clock = clock or AnchoredClock()
        self.store = store or store_from_url(self.settings.database_url)
        self.tuning = tuning_of(self.settings)
        self.guard = AddressGuard(self.settings.allow_addresses, allow_http=self.settings.allow_http)
        self.batches = Batches(self, DEFAULT_ORG)
        """Batches by status, their carrier log, and resubmission."""
        self.outbox = Outbox(self, DEFAULT_ORG)
        """What was set aside there: to look at, to put back or to remove."""
        self.generated_admin_key: str | None = None
        """The bootstrap key, only where `open` was asked for one and had to make it: shown once, never kept."""
        self._listened_to: Store | None = None
        self._exporter: SpanExporter | None = None
        self._watch_hears = False

    # -- life ----------------------------------------------------------------------------------------------

    async def _open(self, *, migrate: bool, admin_key: bool) -> None:
        try:
            self.sealer = sealer = bootstrap.sealer_for(self.settings)
            await self._open_store(migrate)
            now = self.clock.now()
            self.generated_admin_key = await bootstrap.prepare(self.store, self.settings, now, new_key=admin_key)
            self.directory = Directory(self.store, sealer, self.tuning)
            await self.directory.reload()
            self.worker_name = worker_name()
            ground = self._ground(sealer)
            self._assemble(ground)
            await declare(self.store, self.directory, self.clock, ground.terms, self.declarations)
        except BaseException:
            with suppress(Exception):  # what went wrong first is what counts
                await self.store.close()
            raise
        self._exporter = begin_tracing(self.telemetry, self._warn) or self._exporter  # in a fork, our parent's
        self._settle_in()

    async def _open_store(self, migrate: bool) -> None:
        if migrate:
            bootstrap.make_folder(self.settings)
            await self.store.migrate()
        await self.store.open()
        if self.store.capabilities.many_machines and isinstance(self.clock, AnchoredClock):
            self.clock.follow(await self.store.time())

    def _ground(self, sealer: Sealer) -> Ground:
        store, directory, clock = self.store, self.directory, self.clock
        return Ground(
            self.settings, store, directory, clock, self.tuning, self.telemetry, sealer, self.guard, self.worker_name
        )

    def _assemble(self, ground: Ground) -> None:
        """Everything that works on an open store; what callers use of it has a name here."""
        hints = Hints(due=self.wake_dispatcher, posted=self._hint_forwarder, bulk=self._wake_bulk_runner)
        self._parts = parts = assembled(ground, hints, self._mourners, list(self.pipelines.values()))
        self.operator, self.keyring, self.registrar = parts.operator, parts.keyring, parts.registrar
        self.bulk, self.steward, self.alerting = parts.bulk, parts.steward, parts.alerting
        self.reading, self.reporting, self.sampler = parts.reading, parts.reporting, parts.sampler

    def start(self) -> None:
        """Start delivering, in this event loop; it must have been opened here."""
        self.check_open(here=True)
        if self._worker is not None:
            raise Conflict(_DELIVERS)
        http = HttpTransport(self.guard, self.clock, connections_max=self.tuning.places)
        self._worker = self.make_worker(http, random.random, self._isolations())
        self._meters = meters(self.store, self.sampler, self.clock, self.worker_name, self._warn)
        self._heartbeat = Heartbeat(self.store, self.clock, self._presence(self._worker))
        self._worker.services.extend([*self._meters, self._heartbeat])
        if self._listened_to is not self.store:  # it keeps whom it is to call, also when it is closed
            self._listened_to = self.store
            self.store.on_wakeup(self.wake_dispatcher)
            self.store.on_posted(self._hint_forwarder)
        if self.telemetry.heard and not self._watch_hears:  # facts that nobody else wants are not made for a hint
            self._watch_hears = True
            self.telemetry.subscribe(lambda facts: self.alerting.watch.hear(facts))
        self._worker.start()
        self._note("info", "this process delivers", worker=self.worker_name)

    def _presence(self, worker: Worker) -> Presence:
        parts = self._parts
        holders: list[tuple[Task, Holder]] = [(Task.OUTBOX, parts.forward), (Task.WATCH, parts.alerting.watch)]
        holders += [(Task.ROLLER, worker.roller), *((Task.METER, meter) for meter in self._meters)]
        return Presence(self.worker_name, self.clock, self.tuning.places, self.load, self.handlers, holders)

    def make_worker(self, http: Transport, chance: Random, isolated: Mapping[str, Isolation] = {}) -> Worker:
        """A worker of an opened Doorstep, not started: for whoever drives it by himself, as the sandbox does."""
        handlers = HandlerTransport(
            self.clock,
            self.alerting.handlers(self.handlers),
            threads_max=self.tuning.places,
            isolated=isolated,
            orgs=self.alerting.orgs(self.handler_orgs),
            warn=self._warn,
            settle_slack_seconds=self.tuning.settle_slack_seconds,
        )
        name, also = self.worker_name, self._parts.services
        return Worker(
            self.store, self.directory, http, handlers, self.clock, chance, self.tuning, self.telemetry, name, also
        )

    def _warn(self, message: str) -> None:
        self._note("warning", message)

    def _note(self, level: Level, message: str, **fields: object) -> None:
        self.telemetry.emit(Notice(at=to_iso(self.clock.now()), level=level, message=message, fields=fields))

    async def _close(self) -> None:
        try:
            if self._worker is not None:
                await self._worker.stop()
                await self._parts.herald.farewell()
                with suppress(StoreError):  # it is only a right that ends by itself
                    await self._parts.forward.leave()
                    await self.alerting.watch.leave()
                    for meter in self._meters:
                        await meter.leave()
                    await self._heartbeat.leave()
        finally:
            self._worker = None
            await self._end_tracing()
            await self._leave_home()

    async def _end_tracing(self) -> None:
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            await end_tracing(self.telemetry, exporter)

    async def __aenter__(self) -> Self:
        if self._delivers():
            raise Conflict(_DELIVERS)
        await self.open()
        try:
            self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def run(self) -> None:
        """Deliver until the program is told to stop, by Ctrl-C or SIGTERM; writes the log that `doorstep worker` does.

        What your program has set up of the standard library's logging stays as it is.
        """
        with log_of_a_guest(self.settings.log_level, self.settings.log_format, secrets_of(self.settings)) as log:
            self.telemetry.subscribe(log)
            try:
                run_until_stopped(self._run_until)
            finally:
                self.telemetry.unsubscribe(log)

    async def _run_until(self, stop: asyncio.Event) -> None:
        async with self:
            await stop.wait()

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """For web frameworks that run one: `FastAPI(lifespan=doorstep.lifespan)`."""
        async with self:
            yield

    # -- events --------------------------------------------------------------------------------------------

    @overload
    def send(  # type: ignore[overload-overlap]  # every connection is an object, and so is none
        self, event_type: str, payload: object, *, connection: Omitted = ..., **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Receipt]: ...
    @overload
    def send(  # type: ignore[overload-overlap]  # every connection is an object, the asyncio ones come first
        self, event_type: str, payload: object, *, connection: AsyncConnection, **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Posted]: ...
    @overload
    def send(self, event_type: str, payload: object, *, connection: object, **options: Unpack[Options]) -> Posted: ...

    def send(
        self, event_type: str, payload: object, *, connection: object = Omitted.CONNECTION, **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Receipt] | Coroutine[Any, Any, Posted] | Posted:
        """Accept one event. When it has been awaited, it is on stable storage with one delivery per matching endpoint.

        With a `connection` of your own (or a session of SQLAlchemy) it is inserted there, into the outbox, and exists
        if and only if your transaction commits; see docs/how-to/outbox.md. Only an asyncio connection is to be awaited then.

        Bytes must be JSON and are delivered as they are; anything else is encoded as JSON once, now. A Doorstep that
        is not open is opened by the first event.
        """
        if connection is Omitted.CONNECTION:
            return self._send(event_type, payload, options)
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        return post(draft, connection, self.store, self.clock.now(), self.tuning.payload_bytes_max, self.wake)

    async def _send(self, event_type: str, payload: object, options: Options) -> Receipt:
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        (receipt,) = await self.at_home(lambda: self._parts.accepter.accept([draft]))
        if receipt.verdict is Verdict.CONFLICT:
            raise Conflict(KEY_CONFLICT)
        return receipt

    def send_sync(self, event_type: str, payload: object, **options: Unpack[Options]) -> Receipt:
        """`send` for programs without an event loop, and for plain handlers."""
        if "connection" in options:
            raise InvalidInput("connection", "is for `send`, which only inserts a row there and needs no event loop")
        return self.wait(lambda: self.send(event_type, payload, **options))

    def close_sync(self) -> None:
        """Close what `send_sync` opened. A program may also simply end: what was sent is on stable storage."""
        if loop := self._living_home():
            self._thread.run(self.close(), loop)

    async def send_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Accept a batch in one transaction; see Accepter.accept."""
        return await self.inside(lambda: self._parts.accepter.accept(drafts))


def _settings(database_url: str | None) -> Settings:
    return Settings() if database_url is None else Settings(database_url=database_url)
