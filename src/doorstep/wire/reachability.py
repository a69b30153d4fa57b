"""Whether a receiver could be reached from here, found out without sending it anything.

For diagnosis only: a delivery goes its own way (exchange.py). The name is looked up, every address it has is judged,
and a connection, with TLS where the URL wants it, is opened to the first that may be reached, and closed again.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

from doorstep.errors import InvalidInput
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.sites import Resolve, system_resolve
from doorstep.wire.url import ParsedUrl


def why_unreachable(
    url: str, guard: AddressGuard, timeout_seconds: float, resolve: Resolve = system_resolve
) -> str | None:
    """Why no delivery to this URL could succeed now, in a few words; None if a connection could be made."""
    try:
        parsed = guard.check_url(url)
    except InvalidInput as error:
        return f"the URL {error.message}"
    try:
        addresses = [str(parsed.address)] if parsed.address else resolve(parsed.host, parsed.port)
    except (OSError, UnicodeError) as error:
        return f"the name {parsed.host} has no address: {error}"
    return _why_none_answers(parsed, addresses, guard, timeout_seconds)


def _why_none_answers(
    parsed: ParsedUrl, addresses: Sequence[str], guard: AddressGuard, timeout_seconds: float
) -> str | None:
    why = f"the name {parsed.host} has no address"
    for address in addresses:
        refusal = guard.judge(address, parsed.port, plain=parsed.plain)
        if refusal is not None:
            why = f"the address guard refuses {address}: {refusal}"
            continue
        try:
            _connect(parsed, address, timeout_seconds)
        except OSError as error:  # TLS errors are among them
            why = f"{address} port {parsed.port}: {error.strerror or error}"
        else:
            return None
    return why


def _connect(parsed: ParsedUrl, address: str, timeout_seconds: float) -> None:
    with socket.create_connection((address, parsed.port), timeout_seconds) as opened:
        if not parsed.plain:
            context = ssl.create_default_context()
            with context.wrap_socket(opened, server_hostname=parsed.host.strip("[]")):
                pass
