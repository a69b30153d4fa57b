"""The text messages of the demo: batches for a carrier that is busy at times, and refuses what it cannot send."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from doorstep.app import Doorstep
from doorstep.errors import DoorstepError, Permanent, Transient
from doorstep.model.endpoint import CircuitRules
from doorstep.model.outcome import Code
from doorstep.model.retry_policy import RetryPolicy
from doorstep.wire.received import Received

CARRIER = "sms-carrier"
BATCH = "sms.batch"

_BUSY_SHARE, _REFUSED_SHARE = 0.3, 0.01
_MISPRINTED_EVERY = 30
_PAUSE_SECONDS = 9.0
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
        await asyncio.sleep(0 if number < _FIRST else random.expovariate(1 / _PAUSE_SECONDS))


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
