"""A worker that freezes while forwarding, or disappears with its machine, does not stop other workers from
forwarding."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from doorstep.clock import SECOND
from doorstep.stores.open import store_from_url
from doorstep.stores.store import Task
from tests.support.patience import PATIENCE_SECONDS

_HOLDER = """
import asyncio, sys
from doorstep.stores.open import store_from_url
from doorstep.stores.store import Task

async def hold():
    store = store_from_url(sys.argv[1])
    await store.open()
    while store._wakeups._connection is None or not await store.acquire_lock(Task.OUTBOX, "frozen", 0, 300_000):
        await asyncio.sleep(0.01)
    print("held", flush=True)
    while True:
        await asyncio.sleep(0.05)
        await store.acquire_lock(Task.OUTBOX, "frozen", 0, 300_000)

asyncio.run(hold())
"""
_SPAN = 3 * SECOND // 10


async def test_a_frozen_process_loses_the_outbox_when_its_time_is_over_and_a_living_one_does_not(
    postgres_url: str,
) -> None:
    store = store_from_url(postgres_url)
    await store.migrate()
    await store.open()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while store._wakeups._connection is None:  # type: ignore[attr-defined]  # it listens, and so can ask
            await asyncio.sleep(0.01)
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HOLDER, postgres_url, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    try:
        assert await asyncio.wait_for(holder.stdout.readline(), PATIENCE_SECONDS) == b"held\n"
        for _ in range(12):
            assert not await store.acquire_lock(Task.OUTBOX, "other", 0, _SPAN), "he renews it again and again"
            await asyncio.sleep(0.1)
        os.kill(holder.pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await store.acquire_lock(Task.OUTBOX, "other", 0, _SPAN):
                await asyncio.sleep(0.02)
        os.kill(holder.pid, signal.SIGCONT)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await store.acquire_lock(Task.OUTBOX, "other", 0, _SPAN):
                await asyncio.sleep(0.02)
    finally:
        holder.kill()
        await holder.wait()
        await store.close()
