"""A channel service on a test bench, for tests of channels and of the messages sent to them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec.structs import replace

from doorstep.engine.accept import Accepter
from doorstep.engine.directory import change_endpoint
from doorstep.model.alert import OPERATIONS_ORG, Channel, ChannelKind
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.operations.channels import ChannelForm, ChannelService
from doorstep.operations.endpoint_rules import EndpointRules
from doorstep.operations.endpoints import EndpointService
from doorstep.transports.address_guard import AddressGuard
from tests.support.shortcuts import living_endpoints
from tests.unit.engine.scene import Bench


class Desk:
    """A channel service on a test bench; its organization may have one endpoint."""

    def __init__(self, timeout_seconds_max: float = 30.0) -> None:
        self.bench = bench = Bench()
        accepter = Accepter(bench.store, bench.directory, bench.clock, bench.tuning, bench.telemetry, wake=lambda: None)
        rules = EndpointRules(bench.sealer, AddressGuard(), timeout_seconds_max, endpoints_max=1)
        endpoints = EndpointService(bench.store, bench.directory, bench.clock, rules, bench.telemetry)
        self.desk = ChannelService(
            bench.store, bench.directory, bench.clock, endpoints, accepter, rules, "https://doorstep.example",
            has_mail=True,
        )  # fmt: skip
        self.org_id = bench.org.org_id

    async def create(self, org_id: UUID | None = None, **fields: Any) -> Channel:
        given: dict[str, Any] = {"name": "ops", "kind": ChannelKind.WEBHOOK, "target": "https://ops.example/hook"}
        channel, _ = await self.desk.create(ChannelForm(**given | fields), org_id or self.org_id, "ops")
        await self.bench.directory.load((OPERATIONS_ORG,))  # as the claim of a message does
        return channel

    async def test(self, channel: Channel) -> None:
        await self.desk.test(self.org_id, channel.channel_id, "ops")

    async def disable(self, channel: Channel) -> None:
        def disabled(endpoint: Endpoint) -> Endpoint:
            return replace(endpoint, state=EndpointState.DISABLED, state_reason="gone")

        await change_endpoint(
            self.bench.store, OPERATIONS_ORG, channel.channel_id, disabled, actor="x", action="x", now=1
        )

    async def endpoints(self) -> int:
        return sum(one.org_id == OPERATIONS_ORG for one in (await living_endpoints(self.bench.store)))
