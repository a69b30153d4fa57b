"""class Doorstep: opens a store, starts a worker, and is the one facade for everything else."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, Self, Unpack, overload

from doorstep import bootstrap
from doorstep.bootstrap import DEFAULT_ORG, tuning_of
from doorstep.clock import AnchoredClock, Clock
from doorstep.config import Settings
from doorstep.declaring import Declaring
from doorstep.errors import Conflict, InvalidInput, StoreError
from doorstep.log_writer import open_log
from doorstep.model.posting import Posted
from doorstep.model.submission import Receipt, Verdict
from doorstep.overseeing import Overseeing
from doorstep.path.accept import KEY_CONFLICT, Accepter, Draft
from doorstep.path.batches import Batches
from doorstep.path.bulk import BulkDesk
from doorstep.path.bulk_selection import Chooser
from doorstep.path.bulk_steps import BulkStepper
from doorstep.path.declare import declare
from doorstep.path.directory import Directory
from doorstep.path.drafting import Options, draft_of
from doorstep.path.enrol import Terms
from doorstep.path.forward import Forward
from doorstep.path.keyring import Keyring
from doorstep.path.operate import Operator
from doorstep.path.outbox import Outbox
from doorstep.path.post import post
from doorstep.path.reading import Reader
from doorstep.path.registrar import Registrar
from doorstep.path.replay import Replayer
from doorstep.path.steward import Steward
from doorstep.policy.retry import Random
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.forwarder import Forwarder
from doorstep.services.herald import Herald
from doorstep.services.pipeline_keeper import PipelineKeeper
from doorstep.services.worker import Worker, worker_name
from doorstep.stopping import run_until_stopped
from doorstep.stores.foreign import AsyncConnection
from doorstep.stores.opening import store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry import Notice, Telemetry
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.handler_transport import HandlerTransport
from doorstep.wire.http_transport import HttpTransport
from doorstep.wire.isolation.pool import Isolation
from doorstep.wire.transport import Transport

_TELL_SECONDS = 0.01
"""How often other processes are told at most that something was posted here."""


class _Given(Enum):
    """What stands for a connection that was left out. Not None: so looks a session that was forgotten to be made."""

    NOTHING = "nothing"


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

    # -- life ----------------------------------------------------------------------------------------------

    async def _open(self, *, migrate: bool, admin_key: bool) -> None:
        try:
            await self._open_store(migrate)
            now = self.clock.now()
            self.generated_admin_key = await bootstrap.prepare(self.store, self.settings, now, new_key=admin_key)
            self.directory = Directory(self.store, self._sealer, self.tuning)
            await self.directory.reload()
            self._assemble()
            await declare(self.store, self.directory, self.clock, self._terms(), self.declarations)
        except BaseException:
            with suppress(Exception):  # what went wrong first is what counts
                await self.store.close()
            raise
        self._settle_in()

    async def _open_store(self, migrate: bool) -> None:
        self._sealer = bootstrap.sealer_for(self.settings)
        if migrate:
            bootstrap.make_folder(self.settings)
            await self.store.migrate()
        await self.store.open()
        if self.store.capabilities.many_machines and isinstance(self.clock, AnchoredClock):
            self.clock.follow(await self.store.time())

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._telling: asyncio.TimerHandle | None = None

    def _assemble(self) -> None:
        """Everything that works on an open store."""
        shared = (self.store, self.directory, self.clock, self.tuning, self.telemetry)
        self._accepter = Accepter(*shared, wake=self.wake_dispatcher)
        self.operator = Operator(*shared)
        self.keyring = Keyring(self.store, self.clock)
        self.registrar = Registrar(self.store, self.directory, self.clock, self._terms())
        replayer = Replayer(self.store, self._accepter)
        chooser = Chooser(self.store, self.clock, self.tuning)
        self.bulk = BulkDesk(self.store, chooser, self.clock, self._wake_bulk_runner)
        stepper = BulkStepper(self.store, chooser, replayer, self.clock, self.telemetry, self.wake_dispatcher)
        self._herald = Herald(self._mourners, self.store, self.directory, self.clock, self.telemetry)
        self._bulk_runner = BulkRunner(self.store, stepper, self.clock)
        self._forward = Forward(self.store, self._accepter, self.clock, self.telemetry, worker_name())
        self._forwarder = Forwarder(self._forward, noticed=self.store.capabilities.notices_postings)
        self.steward = Steward(
            self.store,
            self.clock,
            self._accepter,
            self.operator,
            replayer,
            self.telemetry,
            self.wake_dispatcher,
        )
        self.reading = Reader(self.store, self.directory, self.clock, self.tuning)
        self._keeper = PipelineKeeper(
            list(self.pipelines.values()), self.store, self.clock, self.tuning, self.telemetry
        )

    def _terms(self) -> Terms:
        settings = self.settings
        return Terms(self._sealer, self.guard, settings.timeout_seconds_max, self.tuning.policy, settings.endpoints_max)

    def start(self) -> None:
        """Start delivering, in this event loop; it must have been opened here."""
        self.check_open(here=True)
        if self._worker is not None:
            raise Conflict(_DELIVERS)
        http = HttpTransport(self.guard, self.clock, connections_max=self.tuning.places)
        self._worker = self.make_worker(http, random.random, self._isolations())
        if self._listened_to is not self.store:  # it keeps whom it is to call, also when it is closed
            self._listened_to = self.store
            self.store.on_wakeup(self.wake_dispatcher)
            self.store.on_posted(self._hint_forwarder)
        self._worker.start()

    def make_worker(self, http: Transport, chance: Random, isolated: Mapping[str, Isolation] = {}) -> Worker:
        """A worker of an opened Doorstep, not started: for whoever drives it by himself, as the sandbox does."""
        return Worker(
            self.store,
            self.directory,
            http,
            HandlerTransport(
                self.clock,
                self.handlers,
                threads_max=self.tuning.places,
                isolated=isolated,
                orgs=self.handler_orgs,
                warn=self._warn,
                settle_slack_seconds=self.tuning.settle_slack_seconds,
            ),
            self.clock,
            chance,
            self.tuning,
            self.telemetry,
            worker_name(),
            also=(self._herald, self._bulk_runner, self._forwarder, *([self._keeper] if self.pipelines else [])),
        )

    def _warn(self, message: str) -> None:
        self.telemetry.emit(Notice(at=self.clock.now(), level="warning", message=message))

    async def _close(self) -> None:
        try:
            if self._worker is not None:
                await self._worker.stop()
                await self._herald.farewell()
                with suppress(StoreError):  # it is only a right that ends by itself
                    await self._forward.leave()
        finally:
            self._worker = None
            await self._leave_home()

    async def __aenter__(self) -> Self:
        if self._worker is not None:
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

    def wake_dispatcher(self) -> None:
        """There may be something due: a hint, in this event loop."""
        if self._worker is not None:
            self._worker.wake()

    def wake(self) -> None:
        """There may be something in the outbox: a hint, from any thread. Without it, it is found a little later."""
        home = self._home  # read once: another thread may be closing
        if home is not None and home[0] == os.getpid():
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                home[1].call_soon_threadsafe(self._hint)

    def _hint(self) -> None:
        """To our own forwarder; if none is running here, to those of other processes, once for all of a moment."""
        loop = asyncio.get_running_loop()
        if self._worker is not None:
            self._hint_forwarder()
        elif self._telling is None or self._telling.when() <= loop.time():
            self._telling = loop.call_later(_TELL_SECONDS, self.store.tell_posted)

    def _hint_forwarder(self) -> None:
        if self._worker is not None:
            self._forwarder.hint()

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
    def send(  # type: ignore[overload-overlap]  # every connection is an object, and so is none
        self, event_type: str, payload: object, *, connection: _Given = ..., **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Receipt]: ...
    @overload
    def send(  # type: ignore[overload-overlap]  # every connection is an object, the asyncio ones come first
        self, event_type: str, payload: object, *, connection: AsyncConnection, **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Posted]: ...
    @overload
    def send(self, event_type: str, payload: object, *, connection: object, **options: Unpack[Options]) -> Posted: ...

    def send(
        self, event_type: str, payload: object, *, connection: object = _Given.NOTHING, **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Receipt] | Coroutine[Any, Any, Posted] | Posted:
        """Accept one event. When it has been awaited, it is on stable storage with one delivery per matching endpoint.

        With a `connection` of your own (or a session of SQLAlchemy) it is inserted there, into the outbox, and exists
        if and only if your transaction commits; see docs/outbox.md. Only an asyncio connection is to be awaited then.

        Bytes must be JSON and are delivered as they are; anything else is encoded as JSON once, now. A Doorstep that
        is not open is opened by the first event.
        """
        if connection is _Given.NOTHING:
            return self._send(event_type, payload, options)
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        return post(draft, connection, self.store, self.clock.now(), self.tuning.payload_bytes_max, self.wake)

    async def _send(self, event_type: str, payload: object, options: Options) -> Receipt:
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        (receipt,) = await self.at_home(lambda: self._accepter.accept([draft]))
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
        return await self.inside(lambda: self._accepter.accept(drafts))


def _settings(database_url: str | None) -> Settings:
    return Settings() if database_url is None else Settings(database_url=database_url)
