"""Everything that works on an open store, and how each part gets the others that it needs."""

from __future__ import annotations

import asyncio
import random
from collections import ChainMap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import Clock, to_iso
from doorstep.config import Settings
from doorstep.encryption import Sealer
from doorstep.engine.accept import Accepter
from doorstep.engine.directory import Directory, Tuning
from doorstep.errors import StoreError
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
from doorstep.operations.outbox import OutboxForwarder, OutboxService
from doorstep.operations.reader import Reader
from doorstep.operations.stats import Busiest, Load, Reporter, Sampler
from doorstep.pipelines.pipeline import Pipeline
from doorstep.policy.retry import Random
from doorstep.registration import Registry
from doorstep.services.alerter import Alerter
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.cleaner import EntityCleaner, MessageCleaner
from doorstep.services.dead_letter_notifier import DeadLetterNotifier
from doorstep.services.exporters import meters
from doorstep.services.forwarder import Forwarder
from doorstep.services.heartbeat import Heartbeat, LeaseHolder, WorkerInfo
from doorstep.services.pipeline_reconciler import PipelineReconciler
from doorstep.services.runner import Service
from doorstep.services.worker import Worker
from doorstep.stores.store import Store, Task
from doorstep.telemetry.facts import Notice, Telemetry
from doorstep.telemetry.logs import Level
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.handler import HandlerTransport
from doorstep.transports.http import HttpTransport
from doorstep.transports.isolation.pool import Isolation
from doorstep.transports.mail import MailServer
from doorstep.transports.transport import Transport

_ANNOUNCE_SECONDS = 0.01
"""How often other processes are told, at most, that something was posted here."""


class Context(NamedTuple):
    """What all of them share."""

    settings: Settings
    store: Store
    directory: Directory
    clock: Clock
    tuning: Tuning
    telemetry: Telemetry
    sealer: Sealer
    guard: AddressGuard
    worker_name: str
    """The name under which this process holds deliveries and tasks."""

    @property
    def endpoint_rules(self) -> EndpointRules:
        """What every new endpoint is checked against."""
        settings = self.settings
        return EndpointRules(
            self.sealer, self.guard, settings.timeout_seconds_max, self.tuning.policy, settings.endpoints_max
        )


class Components:
    """`doorstep.components`: another set each time that the store is opened.

    The API, the console and the command line call these directly, in the event loop that the store was opened in.
    """

    def __init__(self, context: Context, registry: Registry, pipelines: Sequence[Pipeline]) -> None:
        settings, store, directory, clock, tuning, telemetry, sealer, guard, worker_name = context
        self.store, self.directory, self.clock, self.tuning = store, directory, clock, tuning
        self.telemetry, self.sealer, self.guard, self.worker_name = telemetry, sealer, guard, worker_name
        self._registry = registry
        self.worker: Worker | None = None
        """While this process delivers."""
        self._announcing: asyncio.TimerHandle | None = None
        due, rules = self.wake_dispatcher, context.endpoint_rules

        self.accepter = Accepter(store, directory, clock, tuning, telemetry, wake=due)
        replayer = Replayer(store, self.accepter)
        chooser = Selector(store, clock, tuning)
        self.deliveries = DeliveryActions(store, clock, tuning, telemetry, due)
        self.endpoints = EndpointService(store, directory, clock, rules, telemetry, due)
        self.events = EventActions(store, clock, self.accepter, self.deliveries, replayer, telemetry)
        self.bulk = BulkService(store, chooser, clock, self.wake_bulk_runner)
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
        alarms = AlertEvaluator(store, directory, clock, console, self.wake_forwarder)
        self.alerter = Alerter(store, alarms, clock, worker_name, settings.alert_retention_days)

        self.forward = OutboxForwarder(store, self.accepter, clock, telemetry, worker_name)
        self.forwarder = Forwarder(self.forward, noticed=store.capabilities.notices_postings)
        self.bulk_runner = BulkRunner(store, BulkStepper(store, chooser, replayer, clock, telemetry, due), clock)
        self.dead_letter_notifier = DeadLetterNotifier(
            registry.dead_letter_callbacks, store, directory, clock, telemetry
        )
        self.pipeline_keeper = PipelineReconciler(pipelines, store, clock, telemetry)
        self.services: list[Service] = [
            self.dead_letter_notifier,
            self.bulk_runner,
            self.alerter,
            self.forwarder,
            EntityCleaner(pipelines, store, clock, tuning, telemetry),
            MessageCleaner(store, self.deliveries, clock, tuning),
        ]
        """What runs beside a worker's own services."""
        if pipelines:
            self.services.append(self.pipeline_keeper)

    # -- the worker ----------------------------------------------------------------------------------------

    def make_worker(self, http: Transport, chance: Random, isolated: Mapping[str, Isolation] = {}) -> Worker:
        """A worker that is not started: `start` does so; the testing sandbox drives it by itself."""
        own = self.notifiers.handlers
        orgs: ChainMap[str, frozenset[UUID]] = ChainMap(dict.fromkeys(own, ORGS), self._registry.handler_orgs)
        handlers = HandlerTransport(
            self.clock,
            ChainMap(dict(own), self._registry.handlers),  # the program may still add to its own
            threads_max=self.tuning.places,
            isolated=isolated,
            orgs=orgs,
            warn=self.warn,
            settle_slack_seconds=self.tuning.settle_slack_seconds,
        )
        return Worker(
            self.store,
            self.directory,
            http,
            handlers,
            self.clock,
            chance,
            self.tuning,
            self.telemetry,
            self.worker_name,
            self.services,
        )

    def start(self, isolated: Mapping[str, Isolation]) -> None:
        """Deliver from now on."""
        http = HttpTransport(self.guard, self.clock, connections_max=self.tuning.places)
        worker = self.make_worker(http, random.random, isolated)
        self._meters = meters(self.store, self.sampler, self.clock, self.worker_name, self.warn)
        holders: list[tuple[Task, LeaseHolder]] = [(Task.OUTBOX, self.forward), (Task.WATCH, self.alerter)]
        holders += [(Task.ROLLER, worker.roller), *((Task.METER, meter) for meter in self._meters)]
        handlers, places = self._registry.handlers, self.tuning.places
        info = WorkerInfo(self.worker_name, self.clock, places, self.load, handlers, holders)
        self._heartbeat = Heartbeat(self.store, self.clock, info)
        worker.services.extend([*self._meters, self._heartbeat])
        worker.start()
        self.worker = worker

    async def stop(self) -> None:
        """Claim nothing more, finish or hand back what is under way, and release what this process holds."""
        if self.worker is None:
            return
        try:
            await self.worker.stop()
            await self.dead_letter_notifier.flush()
            with suppress(StoreError):  # leases that end by themselves
                await self.forward.leave()
                await self.alerter.leave()
                for meter in self._meters:
                    await meter.leave()
                await self._heartbeat.leave()
        finally:
            self.worker = None

    def load(self) -> Load:
        """What this process is busy with."""
        worker = self.worker
        busy = 0 if worker is None else sum(count for _, count in worker.deliverer.hand.busy_endpoints())
        return Load(accepts_waiting=self.accepter.waiting, places_in_use=busy)

    # -- wakeups: hints, in this event loop. A lost or repeated one does no harm: services look anyway ------

    def wake_dispatcher(self) -> None:
        """There may be something due."""
        if self.worker is not None:
            self.worker.wake()

    def wake_bulk_runner(self) -> None:
        """A bulk operation was started, or changed by an operator."""
        if self.worker is not None:
            self.bulk_runner.wake.set()

    def wake_forwarder(self) -> None:
        """There may be something in the outbox."""
        if self.worker is not None:
            self.forwarder.hint()

    def announce_posted(self) -> None:
        """`wake_forwarder`; if none runs here, those of other processes, once for all postings of a moment."""
        if self.worker is not None:
            return self.forwarder.hint()
        loop = asyncio.get_running_loop()
        if self._announcing is None or self._announcing.when() <= loop.time():
            self._announcing = loop.call_later(_ANNOUNCE_SECONDS, self.store.tell_posted)

    # -- the log -------------------------------------------------------------------------------------------

    def note(self, level: Level, message: str, **fields: object) -> None:
        """Write a line to the log."""
        self.telemetry.emit(Notice(at=to_iso(self.clock.now()), level=level, message=message, fields=fields))

    def warn(self, message: str) -> None:
        """Write a warning to the log."""
        self.note("warning", message)


def console_of(settings: Settings) -> str:
    """Where links in messages lead: the public URL, else the address that this process listens at."""
    return settings.public_url.rstrip("/") or f"http://{settings.host}:{settings.port}"


def _mail_server(settings: Settings) -> MailServer | None:
    if settings.smtp_url is None:
        return None
    return MailServer.from_url(settings.smtp_url.get_secret_value(), settings.smtp_from)
