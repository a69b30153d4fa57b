"""The declarations of a program, and the objects that work on an open store, connected to each other."""

from __future__ import annotations

import asyncio
import shutil
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from random import random as uniform
from typing import Self
from uuid import UUID

from doorstep.bootstrap import DEFAULT_ORG, data_path
from doorstep.clock import Clock
from doorstep.config import Settings
from doorstep.encryption import Sealer
from doorstep.engine.accept import Accepter
from doorstep.engine.directory import Directory, Tuning
from doorstep.errors import ConfigError, InvalidInput, StoreError, StoreUnavailable
from doorstep.operations.actions import DeliveryActions, EventActions
from doorstep.operations.alert_evaluator import AlertEvaluator
from doorstep.operations.alerts import AlertService
from doorstep.operations.batches import check_declarable
from doorstep.operations.bulk import BulkService, Selector
from doorstep.operations.bulk_steps import BulkStepper
from doorstep.operations.channels import ChannelService
from doorstep.operations.endpoint_rules import EndpointForm, EndpointRules, check
from doorstep.operations.endpoints import Declaration, EndpointService
from doorstep.operations.inbox import InboxService
from doorstep.operations.keys import ApiKeys
from doorstep.operations.notifiers import ORGS, Notifiers
from doorstep.operations.orgs import OrgService
from doorstep.operations.outbox import OutboxService
from doorstep.operations.reader import Reader
from doorstep.operations.search import Search
from doorstep.operations.stats import Busiest, Reporter, Sampler
from doorstep.pipelines.pipeline import Pipeline
from doorstep.policy.retry import Random
from doorstep.services.alerter import Alerter
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.coordination import Heartbeat
from doorstep.services.dead_letter_notifier import DeadLetterCallback, DeadLetterNotifier
from doorstep.services.exporters import MetricsExporter, metrics_exporters
from doorstep.services.forwarder import Forwarder
from doorstep.services.maintenance import EntityCleaner, MessageCleaner
from doorstep.services.pipeline_reconciler import PipelineReconciler
from doorstep.services.worker import Service, Worker, worker_name
from doorstep.stores.store import Part, Store, Topic
from doorstep.telemetry.facts import Level, Telemetry
from doorstep.telemetry.metrics import Load
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.handler import HandlerTransport
from doorstep.transports.handler_replies import Handler
from doorstep.transports.http import HttpTransport
from doorstep.transports.isolation import Isolation, IsolationOptions, isolations
from doorstep.transports.log import LogTransport
from doorstep.transports.mail import MailServer
from doorstep.transports.transport import Transport

_STORE_SECONDS_MAX = 2.0
_FREE_BYTES_MIN = 2**20
"""With less free space on the disk of an embedded database, the process is not ready: the next event may be refused."""
_ANNOUNCE_SECONDS = 0.01
"""The minimum time between two notifications to other processes about new outbox messages."""
_WATCH_SECONDS = 1.0
"""The minimum time between two looks for incidents, bulk operations and leases. It is no longer than the shortest lease
that a worker may have."""


class Registry:
    """`doorstep.registry`: what a program declares before its Doorstep is opened."""

    def __init__(self, timeout_seconds_max: float) -> None:
        self._timeout_seconds_max = timeout_seconds_max
        self.handlers: dict[str, Handler] = {}
        """The functions that endpoints may name as their handler."""
        self.handler_orgs: dict[str, frozenset[UUID]] = {}
        """The organizations whose endpoints may use each handler."""
        self.declarations: list[Declaration] = []
        """The declared endpoints, created or updated at each start."""
        self.dead_letter_callbacks: list[DeadLetterCallback] = []
        self.endpoint_defaults: tuple[EndpointForm, tuple[str, ...]] = EndpointForm(name=""), ()
        """The fields of new endpoints that their creators leave out: a form, and the names of its fields that count."""
        self.pipelines: dict[str, Pipeline] = {}
        """The pipelines that were added, by name."""
        self.isolated: dict[str, IsolationOptions] = {}
        """The handlers that run in separate processes."""
        self.isolate_all = False
        """Run every handler in separate processes, regardless of its declaration: `doorstep worker --isolate`."""
        self.loaded_from: str | None = None
        """The `module:name` given to --app, from which the processes of isolated handlers import the `Doorstep`
        object."""

    def copy(self) -> Self:
        """A copy that can be changed independently."""
        copied = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list):
                setattr(copied, name, copy(value))
        return copied

    def declare(self, form: EndpointForm, org_id: UUID) -> None:
        """Declare an endpoint to create or update at each start. Raises if it is invalid or its name is taken."""
        declaration = Declaration(form, org_id)
        if any(one.form.name == form.name and one.org_id == org_id for one in self.declarations):
            raise ConfigError(name_taken(form.name))
        check(form, self._timeout_seconds_max)
        check_declarable(declaration, self.declarations)
        self.declarations.append(declaration)

    def add_handler(self, name: str, handler: Handler, org_id: UUID, isolated: IsolationOptions | None = None) -> None:
        """Let the endpoints of an organization use a function as their handler. Organizations that were added before
        can still use it."""
        self.handlers[name] = handler
        self.handler_orgs[name] = self.handler_orgs.get(name, frozenset()) | {org_id}
        if isolated is not None:
            self.isolated[name] = isolated

    def isolations(self, owner: object) -> dict[str, Isolation]:
        """How to run each isolated handler. `owner` is the Doorstep, which must be a module-level variable."""
        defaults = {name: IsolationOptions() for name in self.handlers} if self.isolate_all else {}
        return isolations(self.handlers, defaults | self.isolated, owner, self.loaded_from)


class Components:
    """`doorstep.components`: built anew each time the store is opened.

    The API, the console and the command line call these objects directly, in the event loop that opened the store.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        directory: Directory,
        clock: Clock,
        tuning: Tuning,
        telemetry: Telemetry,
        sealer: Sealer,
        guard: AddressGuard,
        registry: Registry,
        pipelines: Sequence[Pipeline],
    ) -> None:
        self.store, self.directory, self.clock, self.tuning = store, directory, clock, tuning
        self.telemetry, self.sealer, self.guard = telemetry, sealer, guard
        self.worker_name = worker_name()
        """The name under which this process holds leases and locks."""
        self._registry = registry
        self._folder = data_path(settings)
        self.worker: Worker | None = None
        """None while this process does not deliver."""
        self._exporters: list[MetricsExporter] = []
        self._announcing: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        due = self.wake_dispatcher
        rules = EndpointRules(
            sealer,
            guard,
            settings.timeout_seconds_max,
            tuning.policy,
            settings.endpoints_max,
            registry.endpoint_defaults,
        )

        self.accepter = Accepter(store, directory, clock, tuning, telemetry, wake=due, check_store=self.check_store)
        selector = Selector(store, clock, tuning)
        self.deliveries = DeliveryActions(store, clock, tuning, telemetry, due)
        self.endpoints = EndpointService(store, directory, clock, rules, telemetry, due)
        self.inbox = InboxService(store, clock, telemetry)
        self.events = EventActions(store, clock, self.accepter, self.deliveries, telemetry, due)
        self.bulk = BulkService(store, selector, clock, self.wake_bulk_runner)
        self.outbox = OutboxService(store, clock, DEFAULT_ORG, self.announce_posted)
        self.keys = ApiKeys(store, clock, directory)
        self.reader = Reader(store, directory, clock, tuning)
        self.search = Search(store, directory, clock)
        self.reporter = Reporter(store, directory, clock)
        self.sampler = Sampler(store, self.reader, clock, Busiest(store, directory, settings.metrics_endpoints))

        console, smtp_url = console_of(settings), settings.smtp_url
        mail = None if smtp_url is None else MailServer.from_url(smtp_url.get_secret_value(), settings.smtp_from)
        self.alerts = AlertService(store, clock)
        self.channels = ChannelService(
            store, directory, clock, self.endpoints, self.accepter, rules, console, has_mail=mail is not None
        )
        self.orgs = OrgService(store, directory, clock, self.keys, self.channels)
        self.notifiers = Notifiers(store, directory, sealer, guard, mail)
        evaluator = AlertEvaluator(store, directory, clock, console, self.wake_forwarder)
        self.alerter = Alerter(store, evaluator, clock, self.worker_name, settings.alert_retention_days)

        self.forwarder = Forwarder(store, self.accepter, clock, telemetry, self.worker_name)
        self.bulk_runner = BulkRunner(store, BulkStepper(store, selector, self.accepter, clock, telemetry, due), clock)
        self.dead_letter_notifier = DeadLetterNotifier(
            registry.dead_letter_callbacks, store, directory, clock, telemetry
        )
        self.pipeline_reconciler = PipelineReconciler(pipelines, store, clock, telemetry)
        of_parts: dict[Part, Service] = {
            Part.BULK: self.bulk_runner,
            Part.ALERTS: self.alerter,
            Part.OUTBOX: self.forwarder,
            Part.PIPELINES: EntityCleaner(pipelines, store, clock, tuning, telemetry),
        }
        self.services: list[Service] = [
            self.dead_letter_notifier,
            *(service for part, service in of_parts.items() if part not in store.features.lacks),
            MessageCleaner(store, self.deliveries, clock, tuning),
        ]
        """Services that run in addition to a worker's own."""
        if pipelines:
            self.services.append(self.pipeline_reconciler)

    # -- the worker ----------------------------------------------------------------------------------------

    def make_worker(self, http: Transport, random: Random, isolated: Mapping[str, Isolation] = {}) -> Worker:
        """A worker that has not been started. The testing sandbox runs it step by step."""
        own = self.notifiers.handlers
        orgs: ChainMap[str, frozenset[UUID]] = ChainMap(dict.fromkeys(own, ORGS), self._registry.handler_orgs)
        handlers = HandlerTransport(
            self.clock,
            ChainMap(dict(own), self._registry.handlers),  # the program may still add handlers
            threads_max=self.tuning.slots,
            isolated=isolated,
            orgs=orgs,
            warn=self.warn,
            settle_slack_seconds=self.tuning.settle_slack_seconds,
        )
        return Worker(
            self.store,
            self.directory,
            {"http": http, "handler": handlers, "log": LogTransport(self.clock, self.telemetry)},
            self.clock,
            random,
            self.tuning,
            self.telemetry,
            self.worker_name,
            self.services,
        )

    def start(self, isolated: Mapping[str, Isolation]) -> None:
        """Start delivering."""
        http = HttpTransport(self.guard, self.clock, connections_max=self.tuning.slots)
        worker = self.make_worker(http, uniform, isolated)
        self._exporters = metrics_exporters(self.store, self.sampler, self.clock, self.worker_name, self.warn)
        locks = [self.forwarder.lock, self.alerter.lock, worker.rollup_aggregator.lock]
        locks += [exporter.lock for exporter in self._exporters]
        handlers = self._registry.handlers
        slots = self.tuning.slots
        self._heartbeat = Heartbeat(self.store, self.clock, self.worker_name, slots, self.load, handlers, locks)
        worker.services.extend([*self._exporters, self._heartbeat])
        worker.start()
        self.worker = worker
        self.accepter.intake = worker.deliverer.intake

    async def stop(self) -> None:
        """Stop claiming deliveries; finish or release running attempts; then release the locks of this process."""
        if self.worker is None:
            return
        try:
            await self.worker.stop()
            await self.dead_letter_notifier.flush()
            with suppress(StoreError):  # locks expire by themselves
                await self.forwarder.lock.release()
                await self.alerter.lock.release()
                for exporter in self._exporters:
                    await exporter.close()
                await self._heartbeat.remove()
        finally:
            self.worker = self.accepter.intake = None

    async def check_store(self) -> None:
        """Raise StoreUnavailable if the store does not respond in time."""
        try:
            await asyncio.wait_for(self.store.time(), _STORE_SECONDS_MAX)
        except TimeoutError:
            raise StoreUnavailable("the store does not answer") from None

    async def check_ready(self) -> None:
        """Raise StoreUnavailable if the store does not respond in time or has no room for more events."""
        await self.check_store()
        if self._folder is not None and shutil.disk_usage(self._folder).free < _FREE_BYTES_MIN:
            raise StoreUnavailable(f"the disk of {self._folder} is full")

    def load(self) -> Load:
        """How busy this process is."""
        busy = 0 if self.worker is None else self.worker.deliverer.buffer.busy
        return Load(accepts_waiting=self.accepter.waiting, places_in_use=busy)

    # -- wake-ups: hints, called in this event loop; losing or repeating one is harmless, because services poll --

    def wake_dispatcher(self) -> None:
        """Hint that deliveries may be due."""
        if self.worker is not None:
            self.worker.wake()
            self.wake_watchers()

    def wake_bulk_runner(self) -> None:
        """Hint that a bulk operation was started, or that an operator changed one."""
        if self.worker is not None:
            self.bulk_runner.wake.set()

    def wake_watchers(self) -> None:
        """Hint that something was written, perhaps an incident, a bulk operation or a claim of another worker. These
        services look for it at most once a second."""
        if self.worker is not None and self._watching is None:
            self._watching = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._wake_watchers)

    def _wake_watchers(self) -> None:
        self._watching = None
        if self.worker is not None:
            self.alerter.wake.set()
            self.bulk_runner.wake.set()
            self.worker.reclaimer.search_soon()

    def wake_forwarder(self) -> None:
        """Hint that there may be messages in the outbox."""
        if self.worker is not None:
            self.forwarder.hint()

    def announce_posted(self) -> None:
        """Hint that messages were added to the outbox.

        Wakes this process's forwarder. If no forwarder runs in this process, the forwarders of other processes are
        woken instead; several messages in quick succession wake them only once.
        """
        if self.worker is not None:
            return self.forwarder.hint()
        loop = asyncio.get_running_loop()
        if self._announcing is None or self._announcing.when() <= loop.time():
            self._announcing = loop.call_later(_ANNOUNCE_SECONDS, self.store.wake_others, Topic.OUTBOX)

    # -- the log -------------------------------------------------------------------------------------------

    def note(self, level: Level, message: str, **fields: object) -> None:
        """Write a line to the log."""
        self.telemetry.note(self.clock.now(), level, message, **fields)

    def warn(self, message: str) -> None:
        """Write a warning to the log."""
        self.note("warning", message)


def console_of(settings: Settings) -> str:
    """The base URL for links in notifications: the public URL if set, otherwise the address this process listens on."""
    return settings.public_url.rstrip("/") or f"http://{settings.host}:{settings.port}"


def name_taken(name: str) -> str:
    return f"two handlers are named {name!r}; give one of them another name="


@contextmanager
def errors_naming(handler: str) -> Iterator[None]:
    """Turn InvalidInput into a ConfigError that names the handler."""
    try:
        yield
    except InvalidInput as error:
        raise ConfigError(f"handler {handler!r}: {error}") from None
