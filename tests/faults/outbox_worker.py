"""A worker that is killed and frozen all the time. It forwards, delivers, and records what arrives.

python -m tests.faults.outbox_worker DATABASE_URL LOG
"""

from __future__ import annotations

import asyncio
import os
import sys

from doorstep import Doorstep, Received

SECONDS = 0.05


def main(url: str, log: str) -> None:
    ds = Doorstep(url)
    arrivals = os.open(log, os.O_WRONLY | os.O_APPEND)

    @ds.handler("order.*", name="take")
    async def take(event: Received) -> None:
        os.write(arrivals, f"{event.json()['order']} {event.event_id}\n".encode())
        await asyncio.sleep(SECONDS)  # long enough that some workers die in the middle

    ds.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
