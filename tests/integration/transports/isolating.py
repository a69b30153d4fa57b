"""An isolated handler that tests can send attempts to; none of its processes is left after the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from doorstep.clock import AnchoredClock, seconds
from doorstep.model.attempt import Reply
from doorstep.transports.handler import HandlerTransport
from doorstep.transports.handler_replies import Handler
from doorstep.transports.isolation import Isolation, Place, place_of
from doorstep.transports.transport import Transmission
from tests.integration.transports import isolated_functions as functions
from tests.support.patience import PATIENCE_SECONDS
from tests.support.sending import Sending, a_claim

PAYLOAD = b'{"card": "4111 1111 canary"}'


def an_attempt(deed: str, payload: bytes = PAYLOAD, timeout_seconds: float = 20.0) -> Transmission:
    """An attempt with a long lease, because starting a process takes time on a busy machine."""
    lease_until = AnchoredClock().now() + seconds(120)
    claim = a_claim(payload, event_type=deed, lease_until=lease_until, metadata=b'{"from": "here"}')
    return Transmission(claim, "it", (), b"", timeout_seconds)


@asynccontextmanager
async def isolating(
    function: Handler = functions.do, processes_max: int = 1, memory_mb_max: int | None = None
) -> AsyncIterator[Sending]:
    place = place_of("it", function, None, None)
    isolation = Isolation(place=place, processes_max=processes_max, memory_mb_max=memory_mb_max)
    transport = HandlerTransport(AnchoredClock(), {"it": function}, isolated={"it": isolation})
    try:
        yield Patient(transport)
    finally:
        await transport.close()
        assert not handler_processes()


class Patient(Sending):
    """Also waits for processes to start, which takes longer on a busy machine."""

    async def all(self, transmissions: Sequence[Transmission]) -> list[Reply]:
        return await asyncio.wait_for(asyncio.gather(*self.start(transmissions)), PATIENCE_SECONDS)


def handler_processes() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if _is_ours(one)]


def _is_ours(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # the process has ended in the meantime
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and any("isolation.child" in part for part in process.cmdline())
    return False


def result_of(reply: Reply) -> Any:
    assert reply.failure is None, reply.failure
    return json.loads(reply.body)


@asynccontextmanager
async def isolating_module(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sending]:
    """A handler `do` in a module that only the handler process imports."""
    (folder / "their_module.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    async with isolating() as sending:
        place = Place(module="their_module", attribute="do")
        sending.transport._isolated["it"] = Isolation(place=place, processes_max=1)  # type: ignore[attr-defined]
        yield sending
