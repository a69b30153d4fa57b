"""class Doorstep: opens a store, accepts events, starts a worker. Everything else is composed; see `components`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Self, TypeVar, Unpack, overload
from uuid import UUID

from doorstep import bootstrap
from doorstep.bootstrap import DEFAULT_ORG, tuning_of
from doorstep.clock import AnchoredClock, Clock
from doorstep.components import Components, Context
from doorstep.config import Settings, secrets_of
from doorstep.engine.accept import KEY_CONFLICT, Draft, Options, draft_of
from doorstep.engine.directory import Directory
from doorstep.errors import ConfigError, Conflict, InvalidInput
from doorstep.loop_binding import LoopBinding
from doorstep.model.attempt import Attempt
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.event import EventView, Receipt, Verdict
from doorstep.model.outbox import Posted
from doorstep.operations.batches import Batches
from doorstep.operations.endpoint_rules import (
    DeclaredFields,
    EndpointFields,
    HandlerFields,
    check_event_types,
    check_function,
    form_from,
)
from doorstep.operations.endpoints import declare
from doorstep.operations.outbox import Outbox, post
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Stage
from doorstep.registration import Registry, name_taken, naming
from doorstep.services.dead_letter_notifier import DeadLetterCallback
from doorstep.services.exporters import begin_tracing, end_tracing
from doorstep.services.worker import worker_name
from doorstep.signals import run_until_stopped
from doorstep.stores.foreign import AsyncConnection, Omitted
from doorstep.stores.open import store_from_url
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Fact, Telemetry
from doorstep.telemetry.log_writer import log_of_a_guest
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.handler_replies import Handler
from doorstep.transports.isolation.options import isolation_options
from doorstep.transports.span_exporter import SpanExporter

T = TypeVar("T")
H = TypeVar("H", bound=Handler)
F = TypeVar("F", bound=DeadLetterCallback)

_NOT_OPEN = "this Doorstep is not open; open it first, with `async with doorstep` or `await doorstep.open()`"
_ELSEWHERE = "this Doorstep delivers in another event loop; close it there first, or make another one"
_DELIVERS = "this Doorstep delivers already; it is started once, by the outermost `async with` or `start`"
_IN_TIME = "declare handlers before it is opened, and before the first event is sent"


class Doorstep:
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
        given = settings if isinstance(settings, Settings) else _settings(settings)
        self.settings = bootstrap.pinned(given)
        """The settings, with the place of an embedded database written in full."""
        self.telemetry = telemetry or Telemetry()
        """Where it reports what happens: `telemetry.subscribe(function)`."""
        self.clock: Clock = clock or AnchoredClock()
        """The time that everything here goes by."""
        self.binding: LoopBinding[Components] = LoopBinding(self._open, self._stop, self._close)
        """The event loop in which the store is open: to run your own coroutines there, and whether it is open."""
        self.registry = Registry(self.settings.timeout_seconds_max)
        """The handlers and endpoints that the program has declared."""
        self.pipelines: dict[str, Pipeline] = {}
        """The pipelines that were added, by name."""
        self.batches = Batches(self, DEFAULT_ORG)
        """Batches by status, their carrier log, and resubmission."""
        self.outbox = Outbox(self)
        """What was set aside there: to look at, to put back or to remove."""
        self.generated_admin_key: str | None = None
        """The bootstrap key, only where `open` was asked for one and had to make it: shown once, never kept."""
        self._tuning = tuning_of(self.settings)
        self._guard = AddressGuard(self.settings.allow_addresses, allow_http=self.settings.allow_http)
        self._given_store = store
        self._store = store or store_from_url(self.settings.database_url)
        self._opened_by: int | None = None
        """The process that last began to open the store, whether it succeeded or not."""
        self._parents_stores: list[Store] = []
        """Not used any more, and kept: collecting them would close connections that belong to the parent process."""
        self._subscribed_store: Store | None = None
        self._alerter_subscribed = False
        self._exporter: SpanExporter | None = None

    @property
    def components(self) -> Components:
        """Everything that works on the open store, for use in its event loop; Conflict while it is closed."""
        if (opened := self.binding.opened) is None:
            raise Conflict(_NOT_OPEN)
        return opened

    # -- opening and closing -------------------------------------------------------------------------------

    async def open(self, *, migrate: bool = True, admin_key: bool = False) -> None:
        """Open the store and make what a first start needs; harmless where it is open. Events can be sent from here on.

        It is bound to this event loop then, also if it was open in another one of this process. With `admin_key`, the
        first API key is made where there is none, and it is up to you to show `generated_admin_key` to somebody.
        """
        await self.binding.open(partial(self._open, migrate=migrate, admin_key=admin_key), _check_move)

    async def close(self) -> None:
        """Stop delivering (finishing or handing back what is under way) and close the store."""
        await self.binding.close()

    def close_sync(self) -> None:
        """Close what `send_sync` opened. A program may also simply end: what was sent is on stable storage."""
        self.binding.close_sync()

    def start(self) -> None:
        """Start delivering, in this event loop; it must have been opened here."""
        if not self.binding.is_open_here():
            raise Conflict(_NOT_OPEN)
        components = self.components
        if components.worker is not None:
            raise Conflict(_DELIVERS)
        components.start(self.registry.isolations(self))
        self._subscribe()
        components.note("info", "this process delivers", worker=components.worker_name)

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

    # -- sending -------------------------------------------------------------------------------------------

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
        return post(draft, connection, self._store, self.clock.now(), self._tuning.payload_bytes_max, self.wake)

    async def _send(self, event_type: str, payload: object, options: Options) -> Receipt:
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        (receipt,) = await self.binding.call(lambda: self.components.accepter.accept([draft]))
        if receipt.verdict is Verdict.CONFLICT:
            raise Conflict(KEY_CONFLICT)
        return receipt

    def send_sync(self, event_type: str, payload: object, **options: Unpack[Options]) -> Receipt:
        """`send` for programs without an event loop, and for plain handlers."""
        if "connection" in options:
            raise InvalidInput("connection", "is for `send`, which only inserts a row there and needs no event loop")
        return self.binding.call_sync(lambda: self._send(event_type, payload, options))

    async def send_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Accept several events in one transaction, on a Doorstep that is open; a receipt for each, in their order."""
        return await self._ask(lambda opened: opened.accepter.accept(drafts))

    def wake(self) -> None:
        """There may be something in the outbox: a hint, from any thread. Without it, it is found a little later."""
        self.binding.call_soon(Components.announce_posted)

    # -- declaring, before it is opened --------------------------------------------------------------------

    def handler(
        self,
        *event_types: str,
        name: str | None = None,
        org_id: UUID = DEFAULT_ORG,
        isolated: bool = False,
        memory_mb_max: int | None = None,
        **fields: Unpack[HandlerFields],
    ) -> Callable[[H], H]:
        """Declare that a function takes the events of these types. It becomes an endpoint, named like the function.

        A function that returns has delivered; see `Transient` and `Permanent` for the rest. The same event may come
        again. Plain functions run in threads, async ones in the event loop; isolated ones in processes of their own,
        one attempt at a time in each, where whatever they do costs that attempt alone. Of those there are as many as
        `concurrency_max` says, else as there are cores.
        """
        check_event_types(event_types)

        def declare_handler(function: H) -> H:
            endpoint = name or _name_of(function)
            check_function(f"handler {endpoint!r}", function)
            if (
                self.registry.handlers.get(endpoint, function) != function
            ):  # methods are equal, but never the same object
                raise ConfigError(name_taken(endpoint))
            wish = isolation_options(endpoint, isolated, fields.get("concurrency_max"), memory_mb_max)
            self._check_not_open(endpoint)
            with naming(endpoint):
                form = form_from(endpoint, {"handler": endpoint, "event_types": event_types, **fields})
                self.registry.declare(form, org_id)
            self.registry.add_handler(endpoint, function, org_id, wish)
            return function

        return declare_handler

    def batch(self, *event_types: str, **fields: Unpack[DeclaredFields]) -> Callable[[H], H]:
        """Declare that a function submits the batches of these event types, which it names in full.

        A handler like any other, declared like one, with the policy `carrier` unless another is given. What it submits
        can be found by status, and resubmitted: see `doorstep.batches`.
        """
        described: DeclaredFields = {"policy": "carrier", **fields, "batch": True}
        return self.handler(*event_types, **described)

    def on_dead_letter(self, function: F) -> F:
        """Have a plain or async function called with each `DeadLetter` that this process makes, once; best effort.

        A process that ends first has told nobody. What the function raises is logged and harms nobody.
        """
        check_function(f"on_dead_letter: {function!r}", function)
        if not self.registry.dead_letter_callbacks:
            self.telemetry.subscribe(self._hear_for(lambda opened: opened.dead_letter_notifier.hear))
        self.registry.dead_letter_callbacks.append(function)
        return function

    def register(self, name: str, handler: Handler, *, org_id: UUID = DEFAULT_ORG) -> None:
        """Make a Python callable reachable for endpoints of an organization that name it as their handler.

        A later one replaces it, unless another organization has it too.
        """
        check_function(f"handler {name!r}", handler)
        others = self.registry.handler_orgs.get(name, frozenset()) - {org_id}
        if others and self.registry.handlers[name] != handler:
            raise ConfigError(name_taken(name))
        self.registry.add_handler(name, handler, org_id)

    def add(self, pipeline: Pipeline, *, org_id: UUID = DEFAULT_ORG) -> None:
        """Drive the entities of a pipeline, which is declared with its stages and gates; before the store is opened."""
        if pipeline.name in self.pipelines:
            raise ConfigError(f"two pipelines are named {pipeline.name!r}; give one of them another name")
        for form in pipeline.forms():
            self._check_not_open(form.name)
            with naming(form.name):
                self.registry.declare(form, org_id)
        pipeline.join(self, org_id, partial(self._register_stage, org_id))
        if not self.pipelines:
            self.telemetry.subscribe(self._hear_for(lambda opened: opened.pipeline_keeper.hear))
        self.pipelines[pipeline.name] = pipeline

    def _register_stage(self, org_id: UUID, name: str, handler: Handler, stage: Stage | None) -> None:
        self.register(name, handler, org_id=org_id)
        if stage is not None:
            wish = isolation_options(name, stage.isolated, stage.fields.get("concurrency_max"), stage.memory_mb_max)
            self.registry.add_handler(name, handler, org_id, wish)

    def _check_not_open(self, handler: str) -> None:
        if self.binding.is_open():
            raise ConfigError(f"handler {handler!r} comes too late: this Doorstep is open; {_IN_TIME}")

    # -- asking, on a Doorstep that is open, from any event loop -------------------------------------------

    async def event(self, org_id: UUID, event_id: UUID) -> EventView:
        """An event in full, with its status; one that is still in the outbox too."""
        return await self._ask(lambda opened: opened.reader.event(org_id, event_id))

    async def deliveries(self, org_id: UUID, event_id: UUID) -> list[Delivery]:
        """What an event owes, one delivery for each endpoint that takes it."""
        return await self._ask(lambda opened: opened.reader.deliveries(org_id, event_id))

    async def attempts(self, org_id: UUID, delivery_id: UUID) -> list[Attempt]:
        """The attempt log of a delivery, oldest first."""
        return await self._ask(lambda opened: opened.reader.attempts(org_id, delivery_id))

    async def create_endpoint(
        self, *, name: str, org_id: UUID = DEFAULT_ORG, actor: str = "program", **fields: Unpack[EndpointFields]
    ) -> tuple[Endpoint, str]:
        """Create an endpoint; returns it with what its receiver verifies signatures with.

        For `signing="v1"` that is a shared secret, which cannot be seen again; for `"v1a"` a public key.
        """
        form = form_from(name, fields)
        return await self._ask(lambda opened: opened.endpoints.create(form, org_id, actor))

    async def endpoints(self, org_id: UUID = DEFAULT_ORG) -> list[Endpoint]:
        """All endpoints of an organization."""
        routing = await self._ask(lambda opened: opened.store.routing())
        return [endpoint for endpoint in routing.endpoints if endpoint.org_id == org_id]

    async def _ask(self, question: Callable[[Components], Coroutine[Any, Any, T]]) -> T:
        """Conflict while it is closed: only `send` opens it."""
        if not self.binding.is_open():
            raise Conflict(_NOT_OPEN)
        return await self.binding.call(lambda: question(self.components))

    # -- for the binding, in its event loop ----------------------------------------------------------------

    async def _open(self, *, migrate: bool = True, admin_key: bool = False) -> Components:
        self._leave_lost_store()
        try:
            await self._open_store(migrate)
            now = self.clock.now()
            self.generated_admin_key = await bootstrap.prepare(self._store, self.settings, now, new_key=admin_key)
            components = await self._build()
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                await self._store.close()
            raise
        self._exporter = begin_tracing(self.telemetry, components.warn) or self._exporter  # in a fork, the parent's
        return components

    async def _open_store(self, migrate: bool) -> None:
        self._sealer = bootstrap.sealer_for(self.settings)
        if migrate:
            bootstrap.make_folder(self.settings)
            await self._store.migrate()
        await self._store.open()
        if self._store.capabilities.many_machines and isinstance(self.clock, AnchoredClock):
            self.clock.follow(await self._store.time())

    async def _build(self) -> Components:
        directory = Directory(self._store, self._sealer, self._tuning)
        await directory.reload()
        context = Context(
            self.settings,
            self._store,
            directory,
            self.clock,
            self._tuning,
            self.telemetry,
            self._sealer,
            self._guard,
            worker_name(),
        )
        components = Components(context, self.registry, list(self.pipelines.values()))
        await declare(self._store, directory, self.clock, context.endpoint_rules, self.registry.declarations)
        return components

    def _leave_lost_store(self) -> None:
        """After a fork its connections are the parent's; or its event loop was ended without closing it."""
        if self.binding.is_abandoned or self._opened_by not in (None, os.getpid()):
            self._parents_stores.append(self._store)
            self._store = self._given_store or store_from_url(self.settings.database_url)
        self._opened_by = os.getpid()

    async def _stop(self, components: Components) -> None:
        try:
            await components.stop()
        finally:
            exporter, self._exporter = self._exporter, None
            if exporter is not None:
                await end_tracing(self.telemetry, exporter)

    async def _close(self, components: Components) -> None:
        await components.store.close()

    def _delivers(self) -> bool:
        return self.binding.is_open() and self.components.worker is not None

    def _subscribe(self) -> None:
        """Once: stores and telemetry keep their subscribers when it is closed."""
        if self._subscribed_store is not self._store:
            self._subscribed_store = self._store
            self._store.on_wakeup(self._wake_for(Components.wake_dispatcher))
            self._store.on_posted(self._wake_for(Components.wake_forwarder))
        if (
            self.telemetry.heard and not self._alerter_subscribed
        ):  # facts that nobody else wants are not made for a hint
            self._alerter_subscribed = True
            self.telemetry.subscribe(self._hear_for(lambda opened: opened.alerter.hear))

    def _wake_for(self, wakeup: Callable[[Components], None]) -> Callable[[], None]:
        def wake() -> None:
            if (opened := self.binding.opened) is not None:
                wakeup(opened)

        return wake

    def _hear_for(
        self, hearing: Callable[[Components], Callable[[Sequence[Fact]], None]]
    ) -> Callable[[Sequence[Fact]], None]:
        def hear(facts: Sequence[Fact]) -> None:
            if (opened := self.binding.opened) is not None:
                hearing(opened)(facts)

        return hear


def _settings(database_url: str | None) -> Settings:
    return Settings() if database_url is None else Settings(database_url=database_url)


def _check_move(components: Components) -> None:
    if components.worker is not None:
        raise Conflict(_ELSEWHERE)


def _name_of(function: object) -> str:
    name = getattr(function, "__name__", "")
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"a handler is named like its function, and {function!r} has no name; give it one with name=")
    return name
