"""The parts of a Doorstep that work on an open store, and how each of them gets the others that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from doorstep.alerting import Alerting, console_of, mail_server
from doorstep.clock import Clock
from doorstep.config import Settings
from doorstep.path.accept import Accepter
from doorstep.path.alarms import Alarms
from doorstep.path.alert_desk import AlertDesk
from doorstep.path.bulk import BulkDesk
from doorstep.path.bulk_selection import Chooser
from doorstep.path.bulk_steps import BulkStepper
from doorstep.path.busiest import Busiest
from doorstep.path.channels import ChannelDesk
from doorstep.path.directory import Directory
from doorstep.path.enrol import Terms
from doorstep.path.forward import Forward
from doorstep.path.keyring import Keyring
from doorstep.path.messengers import Messengers
from doorstep.path.operate import Operator
from doorstep.path.reading import Reader
from doorstep.path.registrar import Registrar
from doorstep.path.replay import Replayer
from doorstep.path.reporting import Reporter
from doorstep.path.sampling import Sampler
from doorstep.path.steward import Steward
from doorstep.path.tuning import Tuning
from doorstep.pipelines.pipeline import Pipeline
from doorstep.sealing import Sealer
from doorstep.services.bulk_runner import BulkRunner
from doorstep.services.entity_cleaner import EntityCleaner
from doorstep.services.forwarder import Forwarder
from doorstep.services.herald import Herald, Mourner
from doorstep.services.message_cleaner import MessageCleaner
from doorstep.services.pipeline_keeper import PipelineKeeper
from doorstep.services.running import Service
from doorstep.services.watch import Watch
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry
from doorstep.wire.address_guard import AddressGuard


class Parts(NamedTuple):
    """Everything that works on an open store; another set of them each time that it is opened."""

    accepter: Accepter
    operator: Operator
    keyring: Keyring
    registrar: Registrar
    bulk: BulkDesk
    steward: Steward
    reading: Reader
    alerting: Alerting
    reporting: Reporter
    sampler: Sampler
    herald: Herald
    bulk_runner: BulkRunner
    forward: Forward
    forwarder: Forwarder
    keeper: PipelineKeeper
    services: Sequence[Service]
    """What runs beside a worker's own services."""


class Ground(NamedTuple):
    """What they stand on."""

    settings: Settings
    store: Store
    directory: Directory
    clock: Clock
    tuning: Tuning
    telemetry: Telemetry
    sealer: Sealer
    guard: AddressGuard
    worker: str
    """The name under which this process holds deliveries and tasks."""

    @property
    def terms(self) -> Terms:
        """What endpoints are enrolled by."""
        settings = self.settings
        longest, most = settings.timeout_seconds_max, settings.endpoints_max
        return Terms(self.sealer, self.guard, longest, self.tuning.policy, most)


class Hints(NamedTuple):
    """Whom they tell that there may be something to do."""

    due: Callable[[], None]
    posted: Callable[[], None]
    """Something is in the outbox."""
    bulk: Callable[[], None]
    """A bulk operation was begun, or has its orders."""


def assembled(ground: Ground, hints: Hints, mourners: Sequence[Mourner], pipelines: Sequence[Pipeline]) -> Parts:
    """All of them, for a program that has these pipelines. `mourners` may grow while it runs."""
    settings, store, directory, clock, tuning, telemetry, *_ = ground
    accepter = Accepter(store, directory, clock, tuning, telemetry, wake=hints.due)
    operator = Operator(store, directory, clock, tuning, telemetry)
    registrar = Registrar(store, directory, clock, ground.terms)
    replayer = Replayer(store, accepter)
    chooser = Chooser(store, clock, tuning)
    stepper = BulkStepper(store, chooser, replayer, clock, telemetry, hints.due)
    reading = Reader(store, directory, clock, tuning)
    alerting = _alerting(ground, hints, operator, accepter)
    herald = Herald(mourners, store, directory, clock, telemetry)
    bulk_runner = BulkRunner(store, stepper, clock)
    forward = Forward(store, accepter, clock, telemetry, ground.worker)
    forwarder = Forwarder(forward, noticed=store.capabilities.notices_postings)
    keeper = PipelineKeeper(pipelines, store, clock, telemetry)
    entity_cleaner = EntityCleaner(pipelines, store, clock, tuning, telemetry)
    message_cleaner = MessageCleaner(store, operator, clock, tuning)
    services: list[Service] = [herald, bulk_runner, alerting.watch, forwarder, entity_cleaner, message_cleaner]
    return Parts(
        accepter=accepter,
        operator=operator,
        keyring=Keyring(store, clock),
        registrar=registrar,
        bulk=BulkDesk(store, chooser, clock, hints.bulk),
        steward=Steward(store, clock, accepter, operator, replayer, telemetry, hints.due),
        reading=reading,
        alerting=alerting,
        reporting=Reporter(store, directory, clock),
        sampler=Sampler(store, reading, clock, Busiest(store, directory, settings.metrics_endpoints)),
        herald=herald,
        bulk_runner=bulk_runner,
        forward=forward,
        forwarder=forwarder,
        keeper=keeper,
        services=[*services, keeper] if pipelines else services,
    )


def _alerting(ground: Ground, hints: Hints, operator: Operator, accepter: Accepter) -> Alerting:
    settings, store, directory, clock, *_ = ground
    console, server = console_of(settings), mail_server(settings)
    channels = ChannelDesk(
        store,
        directory,
        clock,
        operator,
        accepter,
        ground.terms,
        console,
        has_mail=server is not None,
    )
    alarms = Alarms(store, directory, clock, console, hints.posted)
    return Alerting(
        AlertDesk(store, clock),
        channels,
        Messengers(store, directory, ground.sealer, ground.guard, server),
        Watch(store, alarms, clock, ground.worker, settings.alert_retention_days),
    )
