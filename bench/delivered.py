"""Counts deliveries as a subscriber of the engine's facts, without querying the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from doorstep.telemetry.facts import DeliveryTransition, Fact


class Delivered:
    def __init__(self, wanted: int) -> None:
        self.count = 0
        self._wanted = wanted
        self.complete = asyncio.Event()
        """Set when the expected number has been delivered."""

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if type(fact) is DeliveryTransition and fact.new_state == "delivered":
                self.count += 1
        if self.count >= self._wanted:
            self.complete.set()
