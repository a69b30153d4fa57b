"""A recording, made by strace, of what a process did to its files and of the answers that it gave in between.

A sync counts from the moment it returns, but an answer from the moment it begins. So no answered event looks safer than
it was.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_CALLS = "openat,pwrite64,ftruncate,fsync,fdatasync,unlink,write,writev,sendto,sendmsg"


_WRITE_BYTES_MAX = 2**21
"""strace truncates longer writes, which would leave holes in the rebuilt file. The reader rejects cut writes."""


class Created(NamedTuple):
    name: str


class Removed(NamedTuple):
    name: str


class Written(NamedTuple):
    name: str
    offset: int
    data: bytes


class Truncated(NamedTuple):
    name: str
    size: int


class Synced(NamedTuple):
    """A sync of a file or, with an empty name, of the folder itself."""

    name: str
    succeeded: bool


class Answered(NamedTuple):
    """The process acknowledged to a client that these events are stored."""

    event_ids: tuple[str, ...]


Step = Created | Removed | Written | Truncated | Synced | Answered


def strace_command(trace: Path, *, inject: str | None = None) -> list[str]:
    """The command prefix that records a process; `inject` is a fault in strace's syntax."""
    strace = shutil.which("strace")
    assert strace, "strace must be installed to record what a process writes"
    faults = [] if inject is None else ["-e", f"inject={inject}"]
    whole = ["-xx", "-y", "-s", str(_WRITE_BYTES_MAX)]
    return [strace, "-f", "-q", "--seccomp-bpf", "-o", str(trace), *whole, "-e", f"trace={_CALLS}", *faults]


def read_steps(trace: Path, folder: Path) -> Iterator[Step]:
    """The changes of the files in the folder, and the acknowledgements of events in between."""
    for call, arguments, result in _calls(trace.open()):
        yield from _step(call, arguments, result, folder)


# -- strace's lines ------------------------------------------------------------------------------------------------

_LINE = re.compile(r"(\d+) +(?:(\w+)\((.*)|<\.\.\. (\w+) resumed>(.*))\n")
_UNFINISHED = " <unfinished ...>"
_HEX = re.compile(r"(?:\\x[0-9a-f]{2})+")
_EVENT_ID = re.compile(rb'"event_id":"([0-9a-f-]{36})"')
_SENDING = ("write", "writev", "sendto", "sendmsg")


def _calls(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """System calls with arguments and results, ordered by their return; sends are ordered by their beginning."""
    begun: dict[str, str] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue  # signals and exits, and the last line if strace was killed while it wrote it
        thread, call, rest, resumed, tail = match.groups()
        if resumed is not None:
            call, rest = resumed, begun.pop(thread, "") + tail
            if call in _SENDING:
                continue
        elif rest.endswith(_UNFINISHED):
            begun[thread] = rest = rest.removesuffix(_UNFINISHED)
            if call not in _SENDING:
                continue
        arguments, _, result = rest.rpartition(" = ")
        yield call, arguments or rest, result


def _step(call: str, arguments: str, result: str, folder: Path) -> Iterator[Step]:
    if call in _SENDING:
        if ids := _EVENT_ID.findall(b"".join(_bytes(found) for found in _HEX.findall(arguments))):
            yield Answered(tuple(event_id.decode() for event_id in ids))
        return
    strings = [_bytes(found) for found in _HEX.findall(arguments)]
    # A path that is an argument is the last string. The path of a descriptor is the first.
    path = strings[-1 if call in ("openat", "unlink") else 0] if strings else b""
    name = _inside(path.decode(errors="replace"), folder)
    failed = result.startswith(("-1", "?"))  # "?": the process was killed in the middle of the call
    if name is None or (failed and call not in ("fsync", "fdatasync")):
        return
    numbers = [int(number) for number in re.findall(r", (\d+)", arguments)]
    match call:
        case "openat" if "O_CREAT" in arguments:
            yield Created(name)
        case "unlink":
            yield Removed(name)
        case "pwrite64":
            assert len(strings[1]) == int(result), f"recorded {len(strings[1])} of {result} bytes written"
            yield Written(name, numbers[-1], strings[1])
        case "ftruncate":
            yield Truncated(name, numbers[-1])
        case "fsync" | "fdatasync":
            yield Synced(name, not failed)


def _inside(path: str, folder: Path) -> str | None:
    """The file's name in the folder; the empty name for the folder itself; None for a file elsewhere.

    The shared-memory index counts as elsewhere, because SQLite rebuilds it after a crash.
    """
    if path == str(folder):
        return ""
    parent, _, name = path.rpartition("/")
    return name if parent == str(folder) and not name.endswith("-shm") else None


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))
