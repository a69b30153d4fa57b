"""The objects that work on an open store. This module creates them and passes each one its dependencies."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import random as uniform
from typing import NamedTuple
from uuid import UUID

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import Clock
from doorstep.config import Settings
from doorstep.encryption import Sealer
from doorstep.engine.accept import Accepter
from doorstep.engine.directory import Directory, Tuning
from doorstep.errors import StoreError, StoreUnavailable
from doorstep.operations.alert_evaluator import AlertEvaluator
from doorstep.operations.alerts import AlertService
from doorstep.operations.bulk import BulkService
from doorstep.operations.bulk_steps import BulkStepper, Selector
from doorstep.operations.channels import ChannelService
from doorstep.operations.deliveries import DeliveryActions
from doorstep.operations.endpoint_rules import EndpointRules
from doorstep.operations.endpoints import EndpointService
from doorstep.operations.events import EventActions, Replayer
from doorstep.operations.keys import ApiKeys
from doorstep.operations.notifiers import ORGS, Notifiers
from doorstep.operations.outbox import OutboxService
from doorstep.operations.reader import Reader
from doorstep.operations.stats import Busiest, Reporter, Sampler
from doorstep.pipelines.pipeline import Pipeline
from doorstep.policy.retry import Random
from doorstep.registration import Registry
from doorstep.services.alerter import Alerter
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.dead_letter_notifier import DeadLetterNotifier
from doorstep.services.exporters import MetricsExporter, metrics_exporters
from doorstep.services.forwarder import Forwarder
from doorstep.services.heartbeat import Heartbeat, WorkerInfo
from doorstep.services.maintenance import EntityCleaner, MessageCleaner
from doorstep.services.pipeline_reconciler import PipelineReconciler
from doorstep.services.worker import Service, Worker
from doorstep.stores.store import Store, Topic
from doorstep.telemetry.facts import Level, Telemetry
from doorstep.telemetry.metrics import Load
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.handler import HandlerTransport
from doorstep.transports.http import HttpTransport
from doorstep.transports.isolation.pool import Isolation
from doorstep.transports.log import LogTransport
from doorstep.transports.mail import MailServer
from doorstep.transports.transport import Transport

_STORE_SECONDS_MAX = 2.0
_ANNOUNCE_SECONDS = 0.01
"""The minimum time between two notifications to other processes about new outbox messages."""


class Context(NamedTuple):
    """The values that most components share."""

    settings: Settings
    store: Store
    directory: Directory
    clock: Clock
    tuning: Tuning
    telemetry: Telemetry
    sealer: Sealer
    guard: AddressGuard
    worker_name: str
    """The name under which this process holds leases and locks."""

    @property
    def endpoint_rules(self) -> EndpointRules:
        """The rules that every new endpoint is checked against."""
        settings = self.settings
        return EndpointRules(
            self.sealer, self.guard, settings.timeout_seconds_max, self.tuning.policy, settings.endpoints_max
        )


class Components:
    """`doorstep.components`: built anew each time the store is opened.

    The API, the console and the command line call these objects directly, in the event loop that opened the store.
    """

    def __init__(self, context: Context, registry: Registry, pipelines: Sequence[Pipeline]) -> None:
        settings, store, directory, clock, tuning, telemetry, sealer, guard, worker_name = context
        self.store, self.directory, self.clock, self.tuning = store, directory, clock, tuning
        self.telemetry, self.sealer, self.guard, self.worker_name = telemetry, sealer, guard, worker_name
        self._registry = registry
        self.worker: Worker | None = None
        """None while this process does not deliver."""
        self._exporters: list[MetricsExporter] = []
        self._announcing: asyncio.TimerHandle | None = None
        due, rules = self.wake_dispatcher, context.endpoint_rules

        self.accepter = Accepter(store, directory, clock, tuning, telemetry, wake=due)
        replayer = Replayer(store, self.accepter)
        selector = Selector(store, clock, tuning)
        self.deliveries = DeliveryActions(store, clock, tuning, telemetry, due)
        self.endpoints = EndpointService(store, directory, clock, rules, telemetry, due)
        self.events = EventActions(store, clock, self.accepter, self.deliveries, replayer, telemetry)
        self.bulk = BulkService(store, selector, clock, self.wake_bulk_runner)
        self.outbox = OutboxService(store, clock, DEFAULT_ORG, self.announce_posted)
        self.keys = ApiKeys(store, clock)
        self.reader = Reader(store, directory, clock, tuning)
        self.reporter = Reporter(store, directory, clock)
        self.sampler = Sampler(store, self.reader, clock, Busiest(store, directory, settings.metrics_endpoints))

        console, mail = console_of(settings), _mail_server(settings)
        self.alerts = AlertService(store, clock)
        self.channels = ChannelService(
            store, directory, clock, self.endpoints, self.accepter, rules, console, has_mail=mail is not None
        )
        self.notifiers = Notifiers(store, directory, sealer, guard, mail)
        evaluator = AlertEvaluator(store, directory, clock, console, self.wake_forwarder)
        self.alerter = Alerter(store, evaluator, clock, worker_name, settings.alert_retention_days)

        self.forwarder = Forwarder(store, self.accepter, clock, telemetry, worker_name)
        self.bulk_runner = BulkRunner(store, BulkStepper(store, selector, replayer, clock, telemetry, due), clock)
        self.dead_letter_notifier = DeadLetterNotifier(
            registry.dead_letter_callbacks, store, directory, clock, telemetry
        )
        self.pipeline_reconciler = PipelineReconciler(pipelines, store, clock, telemetry)
        self.services: list[Service] = [
            self.dead_letter_notifier,
            self.bulk_runner,
            self.alerter,
            self.forwarder,
            EntityCleaner(pipelines, store, clock, tuning, telemetry),
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
        info = WorkerInfo(self.worker_name, self.clock, self.tuning.slots, self.load, handlers, locks)
        self._heartbeat = Heartbeat(self.store, self.clock, info)
        worker.services.extend([*self._exporters, self._heartbeat])
        worker.start()
        self.worker = worker

    async def stop(self) -> None:
        """Stop claiming, finish or release running attempts, and release the locks of this process."""
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
            self.worker = None

    async def check_store(self) -> None:
        """Raise StoreUnavailable if the store does not respond in time."""
        try:
            await asyncio.wait_for(self.store.time(), _STORE_SECONDS_MAX)
        except TimeoutError:
            raise StoreUnavailable("the store does not answer") from None

    def load(self) -> Load:
        """How busy this process is."""
        worker = self.worker
        busy = 0 if worker is None else sum(count for _, count in worker.deliverer.buffer.busy_endpoints())
        return Load(accepts_waiting=self.accepter.waiting, places_in_use=busy)

    # -- wake-ups: hints, called in this event loop; losing or repeating one is harmless, because services poll --

    def wake_dispatcher(self) -> None:
        """Hint that deliveries may be due."""
        if self.worker is not None:
            self.worker.wake()

    def wake_bulk_runner(self) -> None:
        """Hint that a bulk operation was started, or that an operator changed one."""
        if self.worker is not None:
            self.bulk_runner.wake.set()

    def wake_forwarder(self) -> None:
        """Hint that there may be messages in the outbox."""
        if self.worker is not None:
            self.forwarder.hint()

    def announce_posted(self) -> None:
        """Wake this process's forwarder, or, if none runs here, those of other processes, once for several messages."""
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


def _mail_server(settings: Settings) -> MailServer | None:
    if settings.smtp_url is None:
        return None
    return MailServer.from_url(settings.smtp_url.get_secret_value(), settings.smtp_from)
