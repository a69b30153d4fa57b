"""Where URLs lead: each taken apart once, its host name looked up once a minute, by one thread at a time.

curl could look names up by itself, but with 20 threads for everything and two a name: ten names whose servers do
not answer kept all others from being looked up until they timed out. Here a hanging name holds up its own tries.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from doorstep.transports.threads import DaemonThreads
from doorstep.transports.url import parse_url

Resolve = Callable[[str, int], Sequence[str]]
"""Addresses of a name, in the order in which to try them; an OSError says why there are none."""

_FRESH_SECONDS = 60.0
_USABLE_SECONDS = 600.0
"""Known addresses are used for so long while newer ones cannot be had: receivers outlast their name servers."""
_PAUSE_SECONDS = 5.0
"""Between a lookup that failed and the next one, while there are usable addresses."""
_SITES_MAX = 50_000
_THREADS_MAX = 256
"""So many names may hang at the same time before others have to wait for them; a thread lives for seconds only."""


class Name:
    """A host name and port, and the addresses it is known to have. Addresses themselves need no looking up."""

    __slots__ = ("_addresses", "fresh_until", "host", "port", "sought", "told", "trouble", "usable_until")

    def __init__(self, host: str, port: int, is_address: bool) -> None:
        self.host = host
        self.port = port
        self.fresh_until = self.usable_until = math.inf if is_address else -math.inf
        self.sought = False
        """A lookup is under way."""
        self.trouble = ""
        """Why the last lookup brought nothing."""
        self.told = is_address
        """curl knows the addresses."""
        self._addresses: tuple[str, ...] = ()

    @property
    def pinned(self) -> str:
        """The addresses as curl's RESOLVE option wants them."""
        addresses = ",".join(f"[{one}]" if ":" in one else one for one in self._addresses)
        return f"{self.host}:{self.port}:{addresses}"

    def found(self, addresses: Sequence[str], trouble: str, now: float) -> None:
        self.sought = False
        self.trouble = trouble
        if trouble:
            self.fresh_until = now + _PAUSE_SECONDS
            return
        self.told = self.told and tuple(addresses) == self._addresses
        self._addresses = tuple(addresses)
        self.fresh_until, self.usable_until = now + _FRESH_SECONDS, now + _USABLE_SECONDS


class ResolvedUrl(NamedTuple):
    """A URL taken apart."""

    url: str
    plain: bool
    name: Name


class DnsCache:
    """All sites in use. `found` is called on the event loop when a lookup has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resolve: Resolve, found: Callable[[Name], None]) -> None:
        self._loop = loop
        self._resolve = resolve
        self._found = found
        self._sites: dict[str, ResolvedUrl] = {}
        self._names: dict[tuple[str, int], Name] = {}
        self._threads = DaemonThreads(_THREADS_MAX)

    def site(self, target: str) -> ResolvedUrl:
        """InvalidInput for a target that is no HTTP URL."""
        return self._sites.get(target) or self._new_site(target)

    def is_usable(self, name: Name, now: float) -> bool:
        """Whether tries need not wait for the name. Sees to it that its addresses are renewed in time."""
        if min(name.fresh_until, name.usable_until) <= now and not name.sought:
            name.sought = True
            self._threads.submit(lambda: self._look_up(name))
        return name.usable_until > now

    def tell_again(self) -> None:
        """A new curl has been told nothing yet."""
        for name in self._names.values():
            name.told = name.usable_until == math.inf

    def close(self) -> None:
        self._threads.close()

    def _new_site(self, target: str) -> ResolvedUrl:
        parsed = parse_url(target)
        if len(self._sites) >= _SITES_MAX:
            self._sites.clear()
            self._names.clear()
        key = (parsed.host, parsed.port)
        name = self._names.get(key) or Name(*key, parsed.address is not None)
        self._names[key] = name
        site = self._sites[target] = ResolvedUrl(parsed.url, parsed.plain, name)
        return site

    def _look_up(self, name: Name) -> None:
        """In a thread: it may take long."""
        addresses: Sequence[str] = ()
        trouble = ""
        try:
            addresses = self._resolve(name.host, name.port)
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that is too long or empty
            trouble = str(error)
        try:
            self._loop.call_soon_threadsafe(self._end, name, addresses, trouble)
        except RuntimeError:
            pass  # the event loop has closed meanwhile

    def _end(self, name: Name, addresses: Sequence[str], trouble: str) -> None:
        name.found(addresses, trouble, self._loop.time())
        self._found(name)


def system_resolve(host: str, port: int) -> Sequence[str]:
    """As this machine resolves names, without doubles."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
