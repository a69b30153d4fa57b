"""What a service manager such as systemd gives to a process, and what it wants to be told.

Both protocols are a few lines and described in sd_listen_fds(3) and sd_notify(3). A process that no service manager
started finds none of the variables, and does nothing.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_FIRST_DESCRIPTOR = 3


def passed_socket() -> socket.socket | None:
    """The listening socket that the service manager keeps open while the service restarts, so that clients which connect
    in the meantime wait instead of being refused."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS", "0") == "0":
        return None
    return socket.socket(fileno=os.dup(_FIRST_DESCRIPTOR))


def notify(state: str) -> None:
    """Tell the service manager about a change: `READY=1` or `STOPPING=1`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        manager.send(state.encode())
