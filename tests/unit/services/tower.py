"""A test bench with alerters and the messages they send, for tests of alerts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.engine.directory import change_endpoint
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG, Alert, AlertConfig, AlertFilter, Channel, ChannelKind, Rule
from doorstep.model.endpoint import Endpoint
from doorstep.operations.alert_evaluator import AlertEvaluator
from doorstep.services.alerter import REVIEW_SECONDS, Alerter
from tests.support.builders import an_org, new_id
from tests.support.shortcuts import put
from tests.unit.engine.scene import Bench


class Tower(Bench):
    """A bench with any number of alerters."""

    def __init__(self) -> None:
        super().__init__()
        self.posted = 0
        self.watch = self.another_watch("one")

    def another_watch(self, holder: str) -> Alerter:
        alarms = AlertEvaluator(self.store, self.directory, self.clock, "https://console.example", self._posted)
        return Alerter(self.store, alarms, self.clock, holder, retention_days=1)

    def _posted(self) -> None:
        self.posted += 1

    async def kill(self, endpoint: Endpoint, count: int = 1, status: int = 400) -> None:
        await self.accept(endpoint, count)
        while (await self.store.due_lanes(self.clock.now())) and await self._waits():
            await self.deliver(status)

    async def _waits(self) -> bool:
        return any(lane.due_at <= self.clock.now() for lane in await self.store.due_lanes(self.clock.now()))

    async def change(self, endpoint: Endpoint, **fields: Any) -> None:
        """Change an endpoint as an operator would."""
        await change_endpoint(
            self.store,
            endpoint.org_id,
            endpoint.endpoint_id,
            lambda kept: replace(kept, **fields),
            actor="ops",
            action="endpoint.change",
            now=self.clock.now(),
        )

    async def arrange(self, arrangement: AlertConfig) -> None:
        await put(self.store, arrangement, entry=self.line(), limit=10)

    def line(self) -> AuditEntry:
        return AuditEntry(at=self.clock.now(), org_id=self.org.org_id, actor="a", action="b", subjects=(), result="c")

    async def review(self, seconds: float = REVIEW_SECONDS) -> None:
        """Let this much time pass, then run the alerter."""
        self.clock.advance(seconds)
        await self.run()

    async def told(self) -> list[tuple[str, str]]:
        """The type and rule of each message that waits for a channel."""
        bodies = [msgspec.json.decode(one.payload) for one in await self.store.outbox(1_000)]
        return [(body["type"], body["data"]["rule"]) for body in bodies if "rule" in body["data"]]

    async def run(self, watch: Alerter | None = None) -> None:
        while not await (watch or self.watch).run_once():
            pass

    async def alerts(self, rule: Rule | None = None) -> list[Alert]:
        """The alerts, oldest first."""
        found = (await self.store.page(self.org.org_id, AlertFilter(rule=rule))).items
        return list(reversed(found))

    async def messages(self) -> Sequence[UUID]:
        return [one.event_id for one in await self.store.outbox(1_000)]

    async def channel(self) -> Channel:
        await put(self.store, an_org(org_id=OPERATIONS_ORG))
        channel = Channel(
            channel_id=new_id(),
            org_id=self.org.org_id,
            name="ops",
            means=ChannelKind.WEBHOOK,
            shown="https://ops.example",
        )
        await self.arrange(channel)
        return channel
