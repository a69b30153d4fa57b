"""The job that every contender runs: it makes a mark in a file that the race watches, and may take a while first.

Nothing here knows any of the queues: each program imports it beside its own library, in whichever environment it runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import cache

MARK = struct.Struct("<cI")
"""`b` for begun (only where it takes a while) or `d` for done, and the job's number."""
_PAYLOAD_BYTES = 500


def run(number: int, seconds: float) -> None:
    """The job as a plain function."""
    if seconds:
        _mark(b"b", number)
        time.sleep(seconds)
    _mark(b"d", number)


async def run_async(number: int, seconds: float) -> None:
    """The same for an event loop."""
    if seconds:
        _mark(b"b", number)
        await asyncio.sleep(seconds)
    _mark(b"d", number)


def _mark(kind: bytes, number: int) -> None:
    """One small append, which is atomic: several processes may share the file."""
    os.write(_marks(), MARK.pack(kind, number))


@cache
def _marks() -> int:
    return os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND)


# -- sending -----------------------------------------------------------------------------------------------------


def payloads(count: int, seconds: float) -> Iterator[dict[str, object]]:
    """Arguments of so many jobs, about 500 bytes of JSON each."""
    for number in range(count):
        content: dict[str, object] = {"number": number, "seconds": seconds, "text": ""}
        content["text"] = "x" * (_PAYLOAD_BYTES - len(json.dumps(content)))
        yield content


def main(send: Callable[[int, float], None]) -> None:
    """Send as many jobs as the command line says, each to take so many seconds."""
    send(int(sys.argv[1]), float(sys.argv[2]))


def main_async(send: Callable[[int, float], Coroutine[None, None, None]]) -> None:
    """The same for an event loop."""
    asyncio.run(send(int(sys.argv[1]), float(sys.argv[2])))
