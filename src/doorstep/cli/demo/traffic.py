"""What happens in the shop of the demo: a first handful of events so that something shows at once, then steadily."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import Any

from doorstep.app import Doorstep
from doorstep.clock import SECOND
from doorstep.errors import DoorstepError, Permanent, Transient
from doorstep.model.attempt import Code
from doorstep.model.endpoint import CircuitRules, RetryPolicy
from doorstep.model.entity import Entity
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Gate, Stage
from doorstep.transports.handler_replies import Received

_FIRST_OF_EACH_TYPE = 6
_WEIGHTS = {
    "order.paid": 4,
    "order.shipped": 2,
    "customer.created": 4,
    "customer.changed": 2,
    "invoice.sent": 0.6,
    "stock.changed": 0.2,
    "listing.changed": 0.08,
    "cart.abandoned": 0.1,  # taken by no endpoint: it waits in the inbox
}
_ITEMS = ("Copper kettle", "Stoneware teapot", "Tea strainer", "Bamboo whisk", "Oolong, 100 g", "Genmaicha, 250 g")
_CUSTOMERS = ("Amara Osei", "Bela Novak", "Chiara Riva", "Daniel Okafor", "Emi Sato", "Finn Larsen", "Grace Liu")


async def send_steadily(doorstep: Doorstep, per_second: float) -> None:
    """Until it is cancelled. What cannot be accepted now is left out: it is only a demo."""
    numbers = count(40_000)
    for event_type in list(_WEIGHTS) * _FIRST_OF_EACH_TYPE:
        await _send(doorstep, event_type, next(numbers))
    for number in numbers:
        (event_type,) = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        await _send(doorstep, event_type, number)
        await asyncio.sleep(random.expovariate(per_second))


async def _send(doorstep: Doorstep, event_type: str, number: int) -> None:
    try:
        await doorstep.send(event_type, _payload(event_type.partition(".")[0], number))
    except DoorstepError:
        pass


def _payload(kind: str, number: int) -> dict[str, Any]:
    match kind:
        case "customer":
            return {"customer": number, "name": random.choice(_CUSTOMERS), "newsletter": random.random() < 0.4}
        case "stock" | "listing":
            return {"item": random.choice(_ITEMS), "left": random.randrange(0, 90)}
    items = [{"item": item, "quantity": random.randint(1, 3)} for item in random.sample(_ITEMS, random.randint(1, 3))]
    return {kind: number, "customer": random.choice(_CUSTOMERS), "items": items, "total": _price(), "currency": "EUR"}


def _price() -> float:
    return round(random.uniform(8, 240), 2)


CARRIER = "sms-carrier"
BATCH = "sms.batch"

_BUSY_SHARE, _REFUSED_SHARE = 0.3, 0.01
_MISPRINTED_EVERY = 30
_BATCH_PAUSE_SECONDS = 9.0
_FIRST = 6
_TEXTS = ("Your order is on its way.", "Your order is ready to be picked up.", "Your parcel arrives tomorrow.")


def declare_carrier(doorstep: Doorstep) -> None:
    policy, never_opens = RetryPolicy((15, 30, 60)), CircuitRules(failures_max=1_000)
    doorstep.batch(BATCH, name=CARRIER, policy=policy, circuit=never_opens, concurrency_max=2)(_submit)


async def submit_steadily(doorstep: Doorstep) -> None:
    """Until it is cancelled."""
    number = 0
    while True:
        number += 1
        try:
            await doorstep.batches.submit(BATCH, _batch(misprinted=number % _MISPRINTED_EVERY == 2))
        except DoorstepError:
            pass
        await asyncio.sleep(0 if number < _FIRST else random.expovariate(1 / _BATCH_PAUSE_SECONDS))


def _batch(*, misprinted: bool) -> dict[str, Any]:
    numbers = [f"+4915{random.randrange(10**8, 10**9)}" for _ in range(random.randint(2, 5))]
    if misprinted:
        numbers[0] = "0151/OOPS"
    return {"messages": [{"to": number, "text": random.choice(_TEXTS)} for number in numbers]}


async def _submit(batch: Received) -> dict[str, object]:
    messages = batch.json()["messages"]
    await asyncio.sleep(random.uniform(0.2, 1.2))
    if any(not message["to"].startswith("+") for message in messages):
        raise Permanent(Code.INVALID_FORMAT, "A recipient is no phone number.", response={"code": "NUM-04"})
    chance = random.random()
    if chance < _REFUSED_SHARE:
        raise Permanent(Code.BATCH_REJECTED, "The carrier's daily quota is used up.", response={"code": "QUOTA-05"})
    if chance < _REFUSED_SHARE + _BUSY_SHARE:
        raise Transient(Code.SERVICE_UNAVAILABLE, "All lines of the carrier are busy.", response={"code": "BUSY-03"})
    return {"reference": f"C-{random.randrange(10**6)}", "accepted": len(messages)}


GATE = "to_approve"
SMUDGED, BLANK = "smudged", "blank"
_STACK = 5
"""So many come out of the scanner at a time."""
_SCAN_PAUSE_SECONDS = 70.0
_SMUDGED_EVERY, _BLANK_EVERY = 5, 30
_SMUDGED_SHARE, _UNKNOWN_SHARE = 0.5, 0.25
"""How often a smudged one cannot be read, and one that was read has no order."""
_SUPPLIERS = ("Kyoto Leaf", "Harbour Ceramics", "Mill & Sons", "North Cartons", "Tin Works")


def bills() -> Pipeline:
    """One at a time is read, and one matched, so that a stack takes a while."""
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
    pipeline.stage("reading")(_read)
    pipeline.stage("matching")(_match)
    return pipeline


async def scan_steadily(doorstep: Doorstep, pipeline: Pipeline) -> None:
    """Until it is cancelled: a stack, a pause, the next stack."""
    first = doorstep.clock.now() // SECOND % 1_000_000  # a demo that is kept goes on with higher ones
    for number in count():
        data = {"scan": _quality(number), "pages": random.randint(1, 4)}
        try:
            await pipeline.start(data, f"BILL-{first + number}")
        except DoorstepError:
            pass
        await asyncio.sleep(0 if (number + 1) % _STACK else _SCAN_PAUSE_SECONDS)


def _quality(number: int) -> str:
    if number % _BLANK_EVERY == 1:
        return BLANK
    return SMUDGED if number % _SMUDGED_EVERY == 2 else "clean"


async def _read(bill: Entity) -> dict[str, Any]:
    await asyncio.sleep(random.uniform(0.8, 1.8))
    if bill.data["scan"] == BLANK:
        raise Permanent(Code.INVALID_FORMAT, "There is nothing on the pages.")
    if bill.data["scan"] == SMUDGED and random.random() < _SMUDGED_SHARE:
        raise Transient("UNREADABLE", "The total cannot be read.")
    total = round(random.uniform(40, 1_900), 2)
    return {**bill.data, "supplier": random.choice(_SUPPLIERS), "total": total, "currency": "EUR"}


async def _match(bill: Entity) -> dict[str, Any]:
    await asyncio.sleep(random.uniform(0.5, 1.8))
    if random.random() < _UNKNOWN_SHARE:
        raise Transient("NO_ORDER", "The supplier has no open order yet.")
    return {**bill.data, "order": f"PO-{random.randrange(100, 1_000)}"}
