"""The demo's sample shop: the systems that events are delivered to, how they behave, and the traffic.

There is one receiver for each typical kind of behaviour. Retry delays are short enough to watch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.listen import Behaviour
from doorstep.clock import SECOND, Instant, seconds
from doorstep.errors import DoorstepError, NotFound, Permanent, Transient
from doorstep.model.alert import ChannelKind
from doorstep.model.attempt import Code
from doorstep.model.endpoint import CircuitRules, RetryPolicy
from doorstep.model.org import Role
from doorstep.operations.channels import ChannelForm
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Gate, Stage
from doorstep.schemas.pipelines import Entity
from doorstep.transports.handler_replies import Received

_NEVER_OPENS = CircuitRules(failures_max=1_000)


class Outage(NamedTuple):
    """A recurring period in which a receiver behaves differently."""

    every_seconds: float
    lasts_seconds: float
    behaviour: Behaviour

    def is_on(self, now: Instant) -> bool:
        return now % seconds(self.every_seconds) < seconds(self.lasts_seconds)


class Sample(NamedTuple):
    """One endpoint, and how its receiver behaves."""

    name: str
    about: str
    """The receiver's condition, in a word or two."""
    event_types: tuple[str, ...]
    behaviour: Behaviour | None
    """None if nothing listens at the URL."""
    policy: RetryPolicy
    circuit: CircuitRules = _NEVER_OPENS
    outage: Outage | None = None

    @property
    def path(self) -> str:
        return f"/{self.name}"

    def fields(self, url: str) -> dict[str, Any]:
        """The fields with which to create or update the endpoint."""
        return {
            "name": self.name,
            "url": url,
            "event_types": self.event_types,
            "policy": self.policy,
            "circuit": self.circuit,
        }


STOREFRONT = Sample("storefront", "healthy", ("order.*", "customer.*"), Behaviour(), RetryPolicy((2, 10, 60)))
CRM = Sample(
    "crm",
    "flaky",
    ("customer.*", "order.paid"),
    Behaviour(503, fail_share=0.1, body=b'{"error": "try again later"}'),
    RetryPolicy((3, 6, 12, 24)),
    CircuitRules(failures_max=5, open_seconds=10),
    # During the outage, the circuit opens and deliveries are held. All of them arrive when the outage is over.
    Outage(240, 45, Behaviour(503, fail_share=1.0, body=b'{"error": "down for maintenance"}')),
)
WAREHOUSE = Sample("warehouse", "slow", ("order.shipped",), Behaviour(slow_seconds=1.8), RetryPolicy((5, 15)))
# While the circuit is open, one delivery is sent as a probe every few seconds. Each delivery has a single retry, so
# failed probes become dead letters.
ERP = Sample("erp", "down", ("stock.*",), None, RetryPolicy((2,)), CircuitRules(failures_max=5, open_seconds=8))
ACCOUNTING = Sample(
    "accounting",
    "rejects some",
    ("invoice.*",),
    Behaviour(422, fail_share=0.3, body=b'{"error": "vat_number is missing"}'),
    RetryPolicy((5, 30)),
)
MARKETPLACE = Sample(
    "marketplace",
    "rejects our key",
    ("listing.*",),
    Behaviour(401, fail_share=1.0, body=b'{"error": "the token has expired"}'),
    RetryPolicy((5, 30)),
)
SAMPLES = (STOREFRONT, CRM, WAREHOUSE, ERP, ACCOUNTING, MARKETPLACE)

ALERTS_PATH = "/alerts"
_NOT_FOUND = Behaviour(404, fail_share=1.0)


def behaviour_at(path: str, now: Instant) -> Behaviour:
    """The current behaviour of the receiver with this path. An unknown path gets a 404."""
    if path.startswith(ALERTS_PATH):
        return Behaviour()
    sample = next((one for one in SAMPLES if one.path == path), None)
    if sample is None or sample.behaviour is None:
        return _NOT_FOUND
    return sample.outage.behaviour if sample.outage and sample.outage.is_on(now) else sample.behaviour


# -- keys, endpoints and channels --------------------------------------------------------------------------

_ADMIN, _OPERATOR = "lena", "marco"
_KEYS = {_ADMIN: Role.ADMIN, _OPERATOR: Role.OPERATOR, "checkout": Role.PUBLISHER, "bookkeeping": Role.VIEWER}
_CHANNELS = {"on-call": ChannelKind.WEBHOOK, "#shop": ChannelKind.SLACK}


class Actors(NamedTuple):
    """The names of the simulated operators in the audit log: the prefixes of their keys."""

    admin: str
    operator: str


async def create_samples(doorstep: Doorstep, url_of: Callable[[Sample], str], receivers: str) -> None:
    """Create keys, endpoints and channels. If an earlier demo has already created them, update the receivers'
    addresses."""
    admin = (await ensure_keys(doorstep)).admin
    for sample in SAMPLES:
        await _endpoint(doorstep, sample, url_of(sample), admin)
    await _channels(doorstep, receivers, admin)


async def ensure_keys(doorstep: Doorstep) -> Actors:
    """Create the keys that do not exist or are no longer valid."""
    now, known = doorstep.clock.now(), await doorstep.components.keys.keys(DEFAULT_ORG)
    prefixes = {key.name: key.prefix for key in known if key.is_valid(now)}
    for name, role in _KEYS.items():
        if name not in prefixes:
            record, _ = await doorstep.components.keys.create(DEFAULT_ORG, name, role, prefixes.get(_ADMIN, "program"))
            prefixes[name] = record.prefix
    return Actors(prefixes[_ADMIN], prefixes[_OPERATOR])


async def _endpoint(doorstep: Doorstep, sample: Sample, url: str, admin: str) -> None:
    try:
        endpoint_id = await id_of(doorstep, sample)
    except NotFound:
        await doorstep.create_endpoint(**sample.fields(url), actor=admin)
    else:
        await doorstep.components.endpoints.update(DEFAULT_ORG, endpoint_id, sample.fields(url), admin)


async def id_of(doorstep: Doorstep, sample: Sample) -> UUID:
    """The id of the endpoint with this name. A visitor of the demo may have deleted or renamed it."""
    for endpoint in await doorstep.endpoints():
        if endpoint.name == sample.name:
            return endpoint.endpoint_id
    raise NotFound(f"no endpoint {sample.name}")


async def _channels(doorstep: Doorstep, receivers: str, admin: str) -> None:
    """Replace the channels, because the target of a channel cannot be changed."""
    service = doorstep.components.channels
    for channel in await service.reader.channels(DEFAULT_ORG):
        if channel.name in _CHANNELS:
            await service.delete(DEFAULT_ORG, channel.channel_id, admin)
    for name, kind in _CHANNELS.items():
        target = f"{receivers}{ALERTS_PATH}/{kind}"
        await service.create(ChannelForm(name=name, kind=kind, target=target), DEFAULT_ORG, admin)


# -- traffic -----------------------------------------------------------------------------------------------

_FIRST_OF_EACH_TYPE = 6
_WEIGHTS = {
    "order.paid": 4,
    "order.shipped": 2,
    "customer.created": 4,
    "customer.changed": 2,
    "invoice.sent": 0.6,
    "stock.changed": 0.2,
    "listing.changed": 0.08,
    "cart.abandoned": 0.1,  # no endpoint subscribes, so these events stay in the inbox
}
_ITEMS = ("Copper kettle", "Stoneware teapot", "Tea strainer", "Bamboo whisk", "Oolong, 100 g", "Genmaicha, 250 g")
_CUSTOMERS = ("Amara Osei", "Bela Novak", "Chiara Riva", "Daniel Okafor", "Emi Sato", "Finn Larsen", "Grace Liu")


async def send_events(doorstep: Doorstep, per_second: float) -> None:
    """Send a burst with some events of each type, then a steady stream until cancelled. Rejected events are dropped."""
    first = list(_WEIGHTS) * _FIRST_OF_EACH_TYPE
    for number in count(40_000):
        event_type = first.pop() if first else random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        with suppress(DoorstepError):
            await doorstep.send(event_type, _payload(event_type.partition(".")[0], number))
        await asyncio.sleep(0 if first else random.expovariate(per_second))


def _payload(kind: str, number: int) -> dict[str, Any]:
    match kind:
        case "customer":
            return {"customer": number, "name": random.choice(_CUSTOMERS), "newsletter": random.random() < 0.4}
        case "stock" | "listing":
            return {"item": random.choice(_ITEMS), "left": random.randrange(0, 90)}
    items = [{"item": item, "quantity": random.randint(1, 3)} for item in random.sample(_ITEMS, random.randint(1, 3))]
    total = round(random.uniform(8, 240), 2)
    return {kind: number, "customer": random.choice(_CUSTOMERS), "items": items, "total": total, "currency": "EUR"}


# -- batches of text messages ------------------------------------------------------------------------------

BATCH = "sms.batch"

_BUSY_SHARE, _REJECTED_SHARE = 0.3, 0.01
_INVALID_EVERY = 30
_BATCH_PAUSE_SECONDS = 9.0
_FIRST_BATCHES = 6
_TEXTS = ("Your order is on its way.", "Your order is ready for pickup.", "Your parcel arrives tomorrow.")


def declare_carrier(doorstep: Doorstep) -> None:
    policy = RetryPolicy((15, 30, 60))
    doorstep.batch(BATCH, name="sms-carrier", policy=policy, circuit=_NEVER_OPENS, concurrency_max=2)(_submit)


async def submit_batches(doorstep: Doorstep) -> None:
    """Submit batches of text messages until cancelled."""
    for number in count(1):
        with suppress(DoorstepError):
            await doorstep.batches.submit(BATCH, _batch(invalid=number % _INVALID_EVERY == 2))
        await asyncio.sleep(0 if number < _FIRST_BATCHES else random.expovariate(1 / _BATCH_PAUSE_SECONDS))


def _batch(*, invalid: bool) -> dict[str, Any]:
    numbers = [f"+4915{random.randrange(10**8, 10**9)}" for _ in range(random.randint(2, 5))]
    if invalid:
        numbers[0] = "0151/OOPS"
    return {"messages": [{"to": number, "text": random.choice(_TEXTS)} for number in numbers]}


async def _submit(batch: Received) -> dict[str, object]:
    messages = batch.json()["messages"]
    await asyncio.sleep(random.uniform(0.2, 1.2))
    if any(not message["to"].startswith("+") for message in messages):
        raise Permanent(Code.INVALID_FORMAT, "A recipient is not a phone number.", response={"code": "NUM-04"})
    chance = random.random()
    if chance < _REJECTED_SHARE:
        raise Permanent(Code.BATCH_REJECTED, "The carrier's daily quota is used up.", response={"code": "QUOTA-05"})
    if chance < _REJECTED_SHARE + _BUSY_SHARE:
        raise Transient(Code.SERVICE_UNAVAILABLE, "All lines of the carrier are busy.", response={"code": "BUSY-03"})
    return {"reference": f"C-{random.randrange(10**6)}", "accepted": len(messages)}


# -- bills -------------------------------------------------------------------------------------------------

GATE = "to_approve"
SMUDGED, BLANK = "smudged", "blank"
_STACK = 5
"""The number of bills in one scanned stack."""
_SCAN_PAUSE_SECONDS = 70.0
_SMUDGED_EVERY, _BLANK_EVERY = 5, 30
_SMUDGED_SHARE, _UNKNOWN_SHARE = 0.5, 0.25
"""The share of smudged bills that cannot be read, and the share of readable bills that match no order."""
_SUPPLIERS = ("Kyoto Leaf", "Harbour Ceramics", "Mill & Sons", "North Cartons", "Tin Works")


def bill_pipeline() -> Pipeline:
    """A pipeline that reads and matches one bill at a time, so that visitors can watch a stack of bills progress."""
    pipeline = Pipeline(
        "bill",
        first="scanned",
        stages=[
            Stage("reading", failed="unreadable", policy=RetryPolicy((8, 20)), concurrency_max=1),
            Stage("matching", failed="unmatched", policy=RetryPolicy((10, 30)), concurrency_max=1),
            Gate(GATE),
        ],
        last="booked",
        dead="set_aside",
    )
    pipeline.stage("reading")(_read_bill)
    pipeline.stage("matching")(_match_bill)
    return pipeline


async def scan_bills(doorstep: Doorstep, pipeline: Pipeline) -> None:
    """Scan a stack of bills, pause, and repeat until cancelled."""
    first = doorstep.clock.now() // SECOND % 1_000_000  # after a restart with --keep, numbers continue higher
    for number in count():
        data = {"scan": _quality(number), "pages": random.randint(1, 4)}
        with suppress(DoorstepError):
            await pipeline.start(data, f"BILL-{first + number}")
        await asyncio.sleep(0 if (number + 1) % _STACK else _SCAN_PAUSE_SECONDS)


def _quality(number: int) -> str:
    if number % _BLANK_EVERY == 1:
        return BLANK
    return SMUDGED if number % _SMUDGED_EVERY == 2 else "clean"


async def _read_bill(bill: Entity) -> dict[str, Any]:
    await asyncio.sleep(random.uniform(0.8, 1.8))
    if bill.data["scan"] == BLANK:
        raise Permanent(Code.INVALID_FORMAT, "The scan contains no text.")
    if bill.data["scan"] == SMUDGED and random.random() < _SMUDGED_SHARE:
        raise Transient("UNREADABLE", "The total cannot be read.")
    total = round(random.uniform(40, 1_900), 2)
    return {**bill.data, "supplier": random.choice(_SUPPLIERS), "total": total, "currency": "EUR"}


async def _match_bill(bill: Entity) -> dict[str, Any]:
    await asyncio.sleep(random.uniform(0.5, 1.8))
    if random.random() < _UNKNOWN_SHARE:
        raise Transient("NO_ORDER", "The supplier has no open order yet.")
    return {**bill.data, "order": f"PO-{random.randrange(100, 1_000)}"}
