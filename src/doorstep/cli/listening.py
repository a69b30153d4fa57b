"""The listening socket of a server. This module imports nothing else, so that `doorstep serve` can listen at once."""

from __future__ import annotations

import os
import socket

from doorstep.errors import DoorstepError

BACKLOG = 2_048
"""The longest queue of connections that wait to be accepted."""


def listener(host: str, port: int) -> socket.socket:
    """A listening socket. It is opened first, so that an accidental second start fails before it touches any data, and
    that clients of a server that restarts wait instead of being refused: connections are accepted once it is ready."""
    try:
        family, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(found[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        # Python's own message repeats the address.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise DoorstepError(
            f"cannot listen at {host} port {port}: {reason}; "
            "stop the program that uses it, or choose another with --host and --port"
        ) from None


def address(listening: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
