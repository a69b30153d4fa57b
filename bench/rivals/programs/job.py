"""The job that every queue runs: it may sleep first, and then appends a mark to a file that the benchmark watches.

This module does not depend on any queue. Each program imports it together with the library of its own queue.
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
"""`b` for begun (only if the job sleeps) or `d` for done, and the job's number."""
_PAYLOAD_BYTES = 500


def run(number: int, seconds: float) -> None:
    """The job as a plain function."""
    if seconds:
        _mark(b"b", number)
        time.sleep(seconds)
    _mark(b"d", number)


async def run_async(number: int, seconds: float) -> None:
    """The job as an async function."""
    if seconds:
        _mark(b"b", number)
        await asyncio.sleep(seconds)
    _mark(b"d", number)


def _mark(kind: bytes, number: int) -> None:
    """Append a mark. A small append is atomic, so several processes may share the file."""
    os.write(_marks(), MARK.pack(kind, number))


@cache
def _marks() -> int:
    return os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND)


# -- sending -----------------------------------------------------------------------------------------------------


def payloads(count: int, seconds: float) -> Iterator[dict[str, object]]:
    """The arguments of `count` jobs, about 500 bytes of JSON each."""
    for number in range(count):
        content: dict[str, object] = {"number": number, "seconds": seconds, "text": ""}
        content["text"] = "x" * (_PAYLOAD_BYTES - len(json.dumps(content)))
        yield content


def main(send: Callable[[int, float], None]) -> None:
    """Send jobs. The command line contains their number and the duration of each job in seconds."""
    send(int(sys.argv[1]), float(sys.argv[2]))


def main_async(send: Callable[[int, float], Coroutine[None, None, None]]) -> None:
    """The same as `main`, for an async `send`."""
    asyncio.run(send(int(sys.argv[1]), float(sys.argv[2])))
