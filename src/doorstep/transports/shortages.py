"""Recognizes that this process or machine lacks something that an attempt needs: file descriptors, memory for sockets,
or local ports. Such an attempt says nothing about its receiver."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_LACKING = {
    errno.EMFILE: "this process has no free file descriptors",
    errno.ENFILE: "this machine has no free file descriptors",
    errno.ENOBUFS: "this machine has no free memory for sockets",
    errno.ENOMEM: "this machine has no free memory for sockets",
}
_PORTS_SHARE = 0.9
"""The share of the local ports in use from which `EADDRNOTAVAIL` means that none is left. Otherwise it means that the
receiver's address cannot be reached from any address of this machine."""


def shortage_of(error: OSError) -> str:
    """What an operation of ours lacked; empty if it failed for another reason."""
    return _LACKING.get(error.errno or 0, "")


def shortage_now(os_errno: int = 0, proc: Path = Path("/proc")) -> str:
    """What this process lacks after an operation failed in a library, with this error code of the system if the library
    tells it; empty if nothing."""
    if known := _LACKING.get(os_errno, ""):
        return known
    if os_errno == errno.EADDRNOTAVAIL:
        return _port_shortage(proc)
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return shortage_of(error)
    return ""


def _port_shortage(proc: Path) -> str:
    """Compares the sockets of this machine with the range of local ports; empty on systems without Linux's /proc."""
    try:
        first, last = map(int, (proc / "sys/net/ipv4/ip_local_port_range").read_text().split())
        sockets = (proc / "net/sockstat").read_text().splitlines()
    except (OSError, ValueError):
        return ""
    words = next((line.split() for line in sockets if line.startswith("TCP:")), [])
    used = sum(int(words[words.index(name) + 1]) for name in ("inuse", "tw") if name in words)
    return "this machine has no free local ports" if used >= _PORTS_SHARE * (last - first + 1) else ""
