"""The paperwork of the demo: scanned bills of suppliers, which are read, matched with orders and approved by a person."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import Any

from doorstep.app import Doorstep
from doorstep.clock import SECOND
from doorstep.errors import DoorstepError, Permanent, Transient
from doorstep.model.entity import Entity
from doorstep.model.outcome import Code
from doorstep.model.retry_policy import RetryPolicy
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Gate, Stage

GATE = "to_approve"
SMUDGED, BLANK = "smudged", "blank"
_STACK = 5
"""So many come out of the scanner at a time."""
_PAUSE_SECONDS = 70.0
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
        await asyncio.sleep(0 if (number + 1) % _STACK else _PAUSE_SECONDS)


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
