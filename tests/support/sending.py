"""Builds transmissions with one call, and runs a transport whose replies can be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network
from uuid import UUID

from doorstep.clock import AnchoredClock
from doorstep.model.attempt import Reply
from doorstep.model.claim import Claim
from doorstep.transports.address_guard import AddressGuard
from doorstep.transports.http import HttpTransport
from doorstep.transports.transport import Transmission, Transport
from tests.support import builders
from tests.support.builders import NOW
from tests.support.patience import PATIENCE_SECONDS

LOOPBACK = (ip_network("127.0.0.0/8"),)


def a_claim(payload: bytes = b'{"n": 1}', **changes: object) -> Claim:
    """A claim of a second attempt."""
    again: dict[str, object] = {"event_type": "user.created", "correlation_id": "request-1", "worker": "w"}
    again |= {"attempt": 2, "retry_attempts": 1, "lease_until": NOW, "picked_up": False}
    return builders.a_claim(payload=payload, **again | changes)


def a_transmission(
    target: str,
    payload: bytes = b'{"n": 1}',
    headers: tuple[str, ...] = ("content-type: application/json",),
    timeout_seconds: float = PATIENCE_SECONDS,
) -> Transmission:
    return Transmission(a_claim(payload), target, headers, b"content-type: application/json", timeout_seconds)


class Sending:
    """Sends through a transport and returns the replies in the order of the transmissions."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.batches: list[int] = []
        self._awaited: dict[UUID, asyncio.Future[Reply]] = {}
        transport.open(self._done)

    async def all(self, transmissions: Sequence[Transmission]) -> list[Reply]:
        return await asyncio.wait_for(asyncio.gather(*self.start(transmissions)), PATIENCE_SECONDS)

    async def one(self, transmission: Transmission) -> Reply:
        return (await self.all([transmission]))[0]

    def start(self, transmissions: Sequence[Transmission]) -> list[asyncio.Future[Reply]]:
        futures = [asyncio.get_running_loop().create_future() for _ in transmissions]
        self._awaited |= {one.claim.delivery_id: future for one, future in zip(transmissions, futures, strict=True)}
        self.transport.start(transmissions)
        return futures

    def _done(self, replies: Sequence[tuple[Transmission, Reply]]) -> None:
        self.batches.append(len(replies))
        for transmission, reply in replies:
            self._awaited.pop(transmission.claim.delivery_id).set_result(reply)  # a second reply would raise KeyError


@asynccontextmanager
async def sending_over_http(guard: AddressGuard | None = None, **options: object) -> AsyncIterator[Sending]:
    """Open an HTTP transport. By default it may reach loopback addresses."""
    transport = HttpTransport(guard or AddressGuard(LOOPBACK), AnchoredClock(), **options)  # type: ignore[arg-type]
    try:
        yield Sending(transport)
    finally:
        await transport.close()
