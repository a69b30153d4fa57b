"""The class `Doorstep`: opens a store, accepts events, starts a worker. `components.py` wires everything else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload
from uuid import UUID

from msgspec.structs import replace

from doorstep import bootstrap
from doorstep.bootstrap import DEFAULT_ORG, tuning_of
from doorstep.clock import AnchoredClock, Clock
from doorstep.components import Components, Registry, errors_naming, name_taken
from doorstep.config import Settings, secrets_of
from doorstep.engine.accept import KEY_CONFLICT, Draft, Options, draft_of, drafts_of
from doorstep.engine.directory import Directory
from doorstep.errors import ConfigError, Conflict
from doorstep.loop_binding import LoopBinding, run_until_stopped
from doorstep.model.event import Verdict
from doorstep.model.outbox import Posted
from doorstep.operations.batches import Batches
from doorstep.operations.endpoint_rules import (
    DeclaredFields,
    EndpointFields,
    HandlerFields,
    PolicyForm,
    check_event_types,
    check_function,
    check_handler,
    form_from,
    policy_from,
    with_defaults,
)
from doorstep.operations.outbox import Outbox, post, post_sync
from doorstep.operations.sending import Sending
from doorstep.operations.shapes import (
    attempt_shown,
    endpoint_shown,
    read_deliveries,
    read_event,
    receipt_shown,
)
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Stage
from doorstep.schemas.deliveries import Attempt, Delivery
from doorstep.schemas.endpoints import Endpoint
from doorstep.schemas.events import Event, Receipt
from doorstep.server_additions import ServerAdditions
from doorstep.services.dead_letter_notifier import DeadLetterCallback
from doorstep.services.exporters import begin_tracing, end_tracing
from doorstep.stores.app_connections import Omitted
from doorstep.stores.open import store_from_url
from doorstep.stores.store import Store, Topic
from doorstep.telemetry.facts import Telemetry, json_format
from doorstep.telemetry.logs import embedded_log
from doorstep.telemetry.standard_log import StandardLog
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.handler_replies import Handler
from doorstep.transports.isolation import isolation_options
from doorstep.transports.span_exporter import SpanExporter

T = TypeVar("T")
P = ParamSpec("P")
H = TypeVar("H", bound=Handler)
F = TypeVar("F", bound=DeadLetterCallback)

_NOT_OPEN = "this Doorstep is not open; open it first, with `async with doorstep` or `await doorstep.open()`"
_OTHER_LOOP = "this Doorstep delivers in another event loop; close it there first, or create another Doorstep"
_STARTED = "this Doorstep is already delivering; start it once, with the outermost `async with` or `start`"
_DECLARE_FIRST = "declare handlers before it is opened, and before the first event is sent"


class Doorstep:
    """Accepts events and delivers them to webhooks and Python handlers.

        doorstep = Doorstep("sqlite:///app.db")

        @doorstep.handler("order.*")
        async def ship(event):
            print(event.json())

        async with doorstep:
            await doorstep.send("order.paid", {"order": 1})

    Events may be sent from any thread and any event loop. Programs without an event loop use `send_sync`.
    """

    def __init__(
        self,
        settings: Settings | str | None = None,
        *,
        policy: PolicyForm | None = None,
        endpoint_defaults: EndpointFields | None = None,
        telemetry: Telemetry | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`policy` replaces the policy `standard`, which applies to endpoints without a policy. `endpoint_defaults` are
        the fields of new endpoints that their creators leave out."""
        if not isinstance(settings, Settings):
            settings = Settings() if settings is None else Settings(database_url=settings)
        self.settings = bootstrap.pinned(settings)
        """The settings. The path of an embedded database is made absolute."""
        self.telemetry = telemetry or Telemetry(failures=StandardLog(self._endpoint_name))
        """Reports what the engine does: `telemetry.subscribe(function)`."""
        self.clock: Clock = clock or AnchoredClock()
        """The clock that all components use."""
        self.binding: LoopBinding[Components] = LoopBinding(self._open, self._stop, self._close)
        """Ties the store to the event loop in which it was opened. It can also run your own coroutines in that loop."""
        self.registry = Registry(self.settings.timeout_seconds_max)
        """The handlers and endpoints that the program has declared."""
        self.server = ServerAdditions()
        """Adds your own routes, views, log lines and wording to the server that `doorstep serve --app` starts."""
        self.batches = Batches(self, DEFAULT_ORG)
        """Finds batches by status, reads their carrier logs and resubmits them."""
        self.outbox = Outbox(self)
        """Lists, requeues and discards the rejected messages of the outbox."""
        self.generated_admin_key: str | None = None
        """The bootstrap key, if `open(admin_key=True)` generated one. The store keeps only a hash of it."""
        self._tuning = tuning_of(self.settings)
        if policy is not None:
            self._tuning = replace(self._tuning, policy=policy_from(policy))
        self.registry.endpoint_defaults = form_from("", endpoint_defaults or {}), tuple(endpoint_defaults or ())
        self._guard = AddressGuard(self.settings.allow_addresses, allow_http=self.settings.allow_http)
        self._given_store = store
        self._store = store or store_from_url(self.settings.database_url)
        self._opened_by: int | None = None
        """The pid of the process that last tried to open the store."""
        self._parents_stores: list[Store] = []
        """Unused stores, kept because garbage collection would close connections that belong to the parent process."""
        self._subscribed_store: Store | None = None
        self._alerter_subscribed = False
        self._exporter: SpanExporter | None = None

    @property
    def components(self) -> Components:
        """The objects that work on the open store, for use in its event loop. Raises Conflict while it is closed."""
        if (opened := self.binding.opened) is None:
            raise Conflict(_NOT_OPEN)
        return opened

    # -- opening and closing -------------------------------------------------------------------------------

    async def open(self, *, migrate: bool = True, admin_key: bool = False) -> None:
        """Open the store. The first start also creates the secret key and the default organization.

        Does nothing if the store is already open in this event loop. If it is open in another loop of this process, it
        moves to this loop. With `admin_key`, the first API key is generated if there is none; show
        `generated_admin_key` to the user.
        """
        await self.binding.open(partial(self._open, migrate=migrate, admin_key=admin_key), _check_move)

    async def close(self) -> None:
        """Stop delivering and close the store. Running attempts are finished or released."""
        await self.binding.close()

    def close_sync(self) -> None:
        """Close the store that `send_sync` opened. Exiting without this call is safe: accepted events are already
        stored."""
        self.binding.close_sync()

    def start(self) -> None:
        """Start delivering. Call it in the event loop in which `open` was called."""
        if not self.binding.is_open_here():
            raise Conflict(_NOT_OPEN)
        components = self.components
        if components.worker is not None:
            raise Conflict(_STARTED)
        components.start(self.registry.isolations(self))
        self._subscribe()
        components.note("info", "this process delivers", worker=components.worker_name)

    async def __aenter__(self) -> Self:
        if self.binding.is_open() and self.components.worker is not None:
            raise Conflict(_STARTED)
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
        """Deliver until Ctrl-C or SIGTERM. Writes the same log as `doorstep worker`.

        Your program's own `logging` configuration is not changed.
        """
        settings, lines = self.settings, json_format(self.settings.service_name, self.server.log_lines)
        with embedded_log(settings.log_level, settings.log_format, secrets_of(settings), lines) as log:
            failures, self.telemetry.failures = self.telemetry.failures, None  # this log has them
            self.telemetry.subscribe(log)
            try:
                run_until_stopped(self._run_until)
            finally:
                self.telemetry.unsubscribe(log)
                self.telemetry.failures = failures

    async def _run_until(self, stop: asyncio.Event) -> None:
        async with self:
            await stop.wait()

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """A lifespan for web frameworks that support one: `FastAPI(lifespan=doorstep.lifespan)`."""
        async with self:
            yield

    # -- sending -------------------------------------------------------------------------------------------

    @overload
    def send(  # type: ignore[overload-overlap]  # `object` also matches the marker of an omitted connection
        self, event_type: str, payload: object, *, connection: Omitted = ..., **options: Unpack[Options]
    ) -> Sending[Receipt]: ...
    @overload
    def send(
        self, event_type: str, payload: object, *, connection: object, **options: Unpack[Options]
    ) -> Sending[Posted]: ...

    def send(
        self, event_type: str, payload: object, *, connection: object = Omitted.CONNECTION, **options: Unpack[Options]
    ) -> Sending[Receipt] | Sending[Posted]:
        """Accept one event. When the `await` returns, the event and its deliveries are on stable storage.

        With your own `connection` (or SQLAlchemy session), the event is inserted into the outbox in your transaction.
        The event exists if and only if that transaction commits; see docs/how-to/outbox.md.

        A `bytes` payload must be JSON and is delivered unchanged; any other value is encoded as JSON immediately. If
        this Doorstep is not open, the first event opens it.

        Always await the result. A forgotten `await` is logged as an error that names the line: nothing was sent, unless
        the connection is a blocking one, on which the event is inserted at once.
        """
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        if connection is Omitted.CONNECTION:
            return Sending(f"send({event_type!r}, …)", partial(self._accept, draft))
        return post(draft, connection, self._store, self.clock.now(), self._tuning.payload_bytes_max, self.wake)

    async def _accept(self, draft: Draft) -> Receipt:
        (receipt,) = await self.binding.call(lambda: self.components.accepter.accept([draft]))
        if receipt.verdict is Verdict.CONFLICT:
            raise Conflict(KEY_CONFLICT)
        return receipt_shown(receipt)

    @overload
    def send_sync(  # type: ignore[overload-overlap]  # as above
        self, event_type: str, payload: object, *, connection: Omitted = ..., **options: Unpack[Options]
    ) -> Receipt: ...
    @overload
    def send_sync(
        self, event_type: str, payload: object, *, connection: object, **options: Unpack[Options]
    ) -> Posted: ...

    def send_sync(
        self, event_type: str, payload: object, *, connection: object = Omitted.CONNECTION, **options: Unpack[Options]
    ) -> Receipt | Posted:
        """`send` for programs without an event loop, and for handlers that are not async.

        A `connection` must be a blocking one. Then this only inserts a row, so it may also be called in an event loop.
        """
        draft = draft_of(event_type, payload, DEFAULT_ORG, options)
        if connection is Omitted.CONNECTION:
            return self.binding.call_sync(partial(self._accept, draft))
        return post_sync(draft, connection, self._store, self.clock.now(), self._tuning.payload_bytes_max, self.wake)

    def send_many(self, events: Iterable[tuple[str, object] | tuple[str, object, Options]]) -> Sending[list[Receipt]]:
        """Accept several events in one transaction, all or none; return their receipts in the same order.

        Each event is a tuple of the event type, the payload and, if needed, a dict with the options of `send`:

            await doorstep.send_many([("order.paid", {"order": n}, {"ordering_key": "shop-1"}) for n in range(100)])

        An event whose idempotency key was used before for another event is not stored; its receipt has the verdict
        `conflict`. The store must be open.
        """
        drafts = drafts_of(events, DEFAULT_ORG)
        return Sending(f"send_many() of {len(drafts)} events", partial(self._accept_all, drafts))

    async def _accept_all(self, drafts: Sequence[Draft]) -> list[Receipt]:
        receipts = await self._call(lambda opened: opened.accepter.accept(drafts))
        return list(map(receipt_shown, receipts))

    def wake(self) -> None:
        """Hint, from any thread, that the outbox may have messages. Without the hint, the next poll finds them."""
        self.binding.call_soon(Components.announce_posted)

    # -- declaring, before the store is opened -------------------------------------------------------------

    def handler(
        self,
        *event_types: str,
        name: str | None = None,
        org_id: UUID = DEFAULT_ORG,
        isolated: bool = False,
        memory_mb_max: int | None = None,
        **fields: Unpack[HandlerFields],
    ) -> Callable[[H], H]:
        """Turn a function into an endpoint that receives events of these types. The endpoint is named after the
        function.

        If the function returns, the event counts as delivered; to report a failure, raise `Transient` or `Permanent`.
        The same event may be delivered more than once. Plain functions run in threads, and async functions run in the
        event loop. Isolated functions run in separate processes. Each process runs one attempt at a time, so a crash
        affects only that attempt. The number of processes is `concurrency_max`, by default the number of cores.
        """
        check_event_types(event_types)

        def declare_handler(function: H) -> H:
            endpoint = name or _name_of(function)
            check_handler(f"handler {endpoint!r}", function)
            if self.registry.handlers.get(endpoint, function) != function:  # bound methods are equal but not identical
                raise ConfigError(name_taken(endpoint))
            isolation = isolation_options(endpoint, isolated, fields.get("concurrency_max"), memory_mb_max)
            self._check_not_open(endpoint)
            with errors_naming(endpoint):
                given = form_from(endpoint, {"handler": endpoint, "event_types": event_types, **fields})
                form = with_defaults(given, *self.registry.endpoint_defaults)
                self.registry.declare(form, org_id)
            self.registry.add_handler(endpoint, function, org_id, isolation)
            return function

        return declare_handler

    def batch(self, *event_types: str, **fields: Unpack[DeclaredFields]) -> Callable[[H], H]:
        """Turn a function into a batch handler for these event types, which may not contain wildcards.

        The options are those of `handler`, but the default policy is `carrier`. `doorstep.batches` finds its batches by
        status and resubmits them.
        """
        batch_fields: DeclaredFields = {"policy": "carrier", **fields, "batch": True}
        return self.handler(*event_types, **batch_fields)

    def on_dead_letter(self, function: F) -> F:
        """Call a plain or async function once for each `DeadLetter` that this process produces (best effort).

        If the process exits before the call, the function is not called. Its exceptions are only logged.
        """
        check_function(f"on_dead_letter: {function!r}", function)
        if not self.registry.dead_letter_callbacks:
            self.telemetry.subscribe(self._if_open(lambda opened, facts: opened.dead_letter_notifier.on_facts(facts)))
        self.registry.dead_letter_callbacks.append(function)
        return function

    def register(self, name: str, handler: Handler, *, org_id: UUID = DEFAULT_ORG) -> None:
        """Register a Python callable under this name, for endpoints of an organization to use as their handler.

        Registering the name again replaces the callable. Raises ConfigError if another organization uses the name for a
        different callable.
        """
        check_handler(f"handler {name!r}", handler)
        others = self.registry.handler_orgs.get(name, frozenset()) - {org_id}
        if others and self.registry.handlers[name] != handler:
            raise ConfigError(name_taken(name))
        self.registry.add_handler(name, handler, org_id)
        self.binding.call_soon(Components.wake_dispatcher)  # its deliveries may be waiting

    def add(self, pipeline: Pipeline, *, org_id: UUID = DEFAULT_ORG) -> None:
        """Add a pipeline, so that this Doorstep processes its entities. Call it before the store is opened."""
        if pipeline.name in self.registry.pipelines:
            raise ConfigError(f"two pipelines are named {pipeline.name!r}; give one of them another name")
        for form in pipeline.forms():
            self._check_not_open(form.name)
            with errors_naming(form.name):
                self.registry.declare(form, org_id)
        pipeline.join(self, org_id, partial(self._register_stage, org_id))
        if not self.registry.pipelines:
            self.telemetry.subscribe(self._if_open(lambda opened, facts: opened.pipeline_reconciler.on_facts(facts)))
        self.registry.pipelines[pipeline.name] = pipeline

    def _register_stage(self, org_id: UUID, name: str, handler: Handler, stage: Stage | None) -> None:
        self.register(name, handler, org_id=org_id)
        if stage is not None:
            concurrency_max = stage.fields.get("concurrency_max")
            isolation = isolation_options(name, stage.isolated, concurrency_max, stage.memory_mb_max)
            self.registry.add_handler(name, handler, org_id, isolation)

    def _check_not_open(self, handler: str) -> None:
        if self.binding.is_open():
            raise ConfigError(f"handler {handler!r} is declared too late: this Doorstep is open; {_DECLARE_FIRST}")

    # -- reading and creating, on an open Doorstep, from any event loop ------------------------------------

    async def event(self, event_id: UUID, *, org_id: UUID = DEFAULT_ORG) -> Event:
        """An event with its payload, its status and its deliveries, even if it is still in the outbox."""
        return await self._call(lambda opened: read_event(opened.reader, org_id, event_id))

    async def deliveries(self, event_id: UUID, *, org_id: UUID = DEFAULT_ORG) -> list[Delivery]:
        """The deliveries of an event, one for each endpoint that receives it."""
        return await self._call(lambda opened: read_deliveries(opened.reader, org_id, event_id))

    async def attempts(self, delivery_id: UUID, *, org_id: UUID = DEFAULT_ORG) -> list[Attempt]:
        """The attempt log of a delivery, oldest first. `error_detail` has the traceback of a handler."""
        return list(map(attempt_shown, await self._call(lambda opened: opened.reader.attempts(org_id, delivery_id))))

    async def create_endpoint(
        self, *, name: str, org_id: UUID = DEFAULT_ORG, actor: str = "program", **fields: Unpack[EndpointFields]
    ) -> tuple[Endpoint, str]:
        """Create an endpoint. Returns it with the key that its receiver needs to verify signatures.

        For `signing="v1"`, the key is a shared secret, which is never shown again; if you pass your own `secret`, the key
        is empty. For `"v1a"`, it is a public key.
        """
        form = form_from(name, fields)
        endpoint, key = await self._call(lambda opened: opened.endpoints.create(form, org_id, actor))
        return endpoint_shown(endpoint), key

    async def endpoints(self, org_id: UUID = DEFAULT_ORG) -> list[Endpoint]:
        """All endpoints of an organization."""
        endpoints = await self._call(lambda opened: opened.directory.endpoints_of(org_id))
        return [endpoint_shown(endpoint) for endpoint in endpoints]

    async def _call(self, function: Callable[[Components], Coroutine[Any, Any, T]]) -> T:
        """Call a function with the components, in their event loop.

        Raises Conflict while the store is closed. Only `send` opens a closed store.
        """
        if not self.binding.is_open():
            raise Conflict(_NOT_OPEN)
        return await self.binding.call(lambda: function(self.components))

    # -- opening and closing, called by the binding in its event loop --------------------------------------

    async def _open(self, *, migrate: bool = True, admin_key: bool = False) -> Components:
        self._replace_lost_store()
        try:
            await self._open_store(migrate)
            now = self.clock.now()
            self.generated_admin_key = await bootstrap.prepare(self._store, self.settings, now, new_key=admin_key)
            components = await self._build()
        except BaseException:
            with suppress(Exception):  # report the original error, not one from closing
                await self._store.close()
            raise
        exporter = begin_tracing(self.telemetry, components.warn)
        self._exporter = exporter or self._exporter  # after a fork, keep the parent's exporter
        return components

    async def _open_store(self, migrate: bool) -> None:
        if migrate:
            bootstrap.make_folder(self.settings)
            await self._store.migrate(self.server.views)
        await self._store.open()
        self._sealer = await bootstrap.open_sealer(self._store, self.settings)
        if self._store.features.many_machines and isinstance(self.clock, AnchoredClock):
            self.clock.follow(await self._store.time())

    async def _build(self) -> Components:
        directory = Directory(self._store, self._sealer, self._tuning)
        components = Components(
            self.settings,
            self._store,
            directory,
            self.clock,
            self._tuning,
            self.telemetry,
            self._sealer,
            self._guard,
            self.registry,
            list(self.registry.pipelines.values()),
        )
        await components.endpoints.declare(self.registry.declarations)
        return components

    def _replace_lost_store(self) -> None:
        """Use a new store if the connections of the old one belong to a parent process or to a closed event loop."""
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

    def _endpoint_name(self, endpoint_id: UUID) -> str:
        opened = self.binding.opened
        endpoint = None if opened is None else opened.directory.endpoint(endpoint_id)
        return f"endpoint {endpoint_id}" if endpoint is None else endpoint.name

    def _subscribe(self) -> None:
        """Subscribe once per store and once to the telemetry: both keep their subscribers after a close."""
        if self._subscribed_store is not self._store:
            self._subscribed_store = self._store
            self._store.on_wakeup(Topic.DELIVERIES, self._if_open(Components.wake_dispatcher))
            self._store.on_wakeup(Topic.OUTBOX, self._if_open(Components.wake_forwarder))
            self._store.on_wakeup(Topic.INCIDENTS, self._if_open(Components.wake_watchers))
        # Facts are created only if there are subscribers. The alerter alone does not justify that cost: it also polls.
        if self.telemetry.has_subscribers and not self._alerter_subscribed:
            self._alerter_subscribed = True
            self.telemetry.subscribe(self._if_open(lambda opened, facts: opened.alerter.on_facts(facts)))

    def _if_open(self, function: Callable[Concatenate[Components, P], None]) -> Callable[P, None]:
        """A subscriber that calls the function with the current components, but only while the store is open."""

        def call_if_open(*args: P.args, **options: P.kwargs) -> None:
            if (opened := self.binding.opened) is not None:
                function(opened, *args, **options)

        return call_if_open


def _check_move(components: Components) -> None:
    if components.worker is not None:
        raise Conflict(_OTHER_LOOP)


def _name_of(function: object) -> str:
    name = getattr(function, "__name__", "")
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"a handler is named after its function, but {function!r} has no name; set one with name=")
    return name
