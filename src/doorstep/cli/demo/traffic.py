"""Steady traffic for the demo: a first handful so that something shows at once, then so many events a second."""

from __future__ import annotations

import asyncio
import random
from itertools import count

from doorstep.app import Doorstep
from doorstep.errors import DoorstepError

_FIRST_OF_EACH_TYPE = 6
_WEIGHTS = {
    "order.paid": 4,
    "order.shipped": 2,
    "user.created": 4,
    "user.changed": 2,
    "invoice.sent": 1,
    "stock.changed": 0.3,
    "partner.sync": 0.1,
}


async def send_steadily(doorstep: Doorstep, per_second: float) -> None:
    """Until it is cancelled. What cannot be accepted now is left out: it is only a demo."""
    numbers = count(1_000)
    for event_type in list(_WEIGHTS) * _FIRST_OF_EACH_TYPE:
        await _send(doorstep, event_type, next(numbers))
    for number in numbers:
        (event_type,) = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        await _send(doorstep, event_type, number)
        await asyncio.sleep(random.expovariate(per_second))


async def _send(doorstep: Doorstep, event_type: str, number: int) -> None:
    kind = event_type.partition(".")[0]
    payload = {kind: number, "amount": round(random.uniform(5, 500), 2), "currency": "EUR"}
    try:
        await doorstep.send(event_type, payload)
    except DoorstepError:
        pass
