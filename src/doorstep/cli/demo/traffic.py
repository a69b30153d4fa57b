"""What happens in the shop of the demo: a first handful of events so that something shows at once, then steadily."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import Any

from doorstep.app import Doorstep
from doorstep.errors import DoorstepError

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
