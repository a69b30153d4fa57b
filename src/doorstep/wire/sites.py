"""Where URLs lead: each taken apart once, its host name looked up once a minute, by one thread at a time.

curl could look names up by itself, but with 20 threads for everything and two a name: ten names whose servers do
not answer kept all others from being looked up until they timed out. Here a hanging name holds up its own tries.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Sequence

from doorstep.wire.daemon_threads import DaemonThreads
from doorstep.wire.url import parse_url

Resolve = Callable[[str, int], Sequence[str]]
"""Addresses of a name, in the order in which to try them; an OSError says why there are none."""

_FRESH_SECONDS = 60.0
_SITES_MAX = 50_000
_THREADS_MAX = 256
"""So many names may hang at the same time before others have to wait for them; a thread lives for seconds only."""


class Site:
    """A URL taken apart, and what is known of its name."""

    __slots__ = ("_addresses", "fresh_until", "host", "plain", "port", "sought", "told", "trouble", "url")

    def __init__(self, target: str) -> None:
        parsed = parse_url(target)
        self.url = parsed.url
        self.plain = parsed.plain
        self.host = parsed.host
        self.port = parsed.port
        self.sought = False
        self.trouble = ""
        is_address = parsed.address is not None
        self.fresh_until = math.inf if is_address else -math.inf
        self.told = is_address
        """curl knows the addresses already."""
        self._addresses: tuple[str, ...] = ()

    @property
    def pinned(self) -> str:
        """The addresses as curl's RESOLVE option wants them."""
        addresses = ",".join(f"[{one}]" if ":" in one else one for one in self._addresses)
        return f"{self.host}:{self.port}:{addresses}"

    def found(self, addresses: Sequence[str], trouble: str, now: float) -> None:
        self.sought = False
        self.trouble = trouble
        if not trouble:
            self.told = self.told and tuple(addresses) == self._addresses
            self._addresses = tuple(addresses)
            self.fresh_until = now + _FRESH_SECONDS


class Sites:
    """All sites in use. `found` is called on the event loop when a lookup has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resolve: Resolve, found: Callable[[Site], None]) -> None:
        self._loop = loop
        self._resolve = resolve
        self._found = found
        self._sites: dict[str, Site] = {}
        self._threads = DaemonThreads(_THREADS_MAX)

    def site(self, target: str) -> Site:
        """InvalidInput for a target that is no HTTP URL."""
        site = self._sites.get(target)
        if site is None:
            if len(self._sites) >= _SITES_MAX:
                self._sites.clear()
            site = self._sites[target] = Site(target)
        return site

    def look_up(self, site: Site) -> None:
        """Look the name up, unless that is under way already."""
        if not site.sought:
            site.sought = True
            self._threads.submit(lambda: self._look_up(site))

    def forget(self) -> None:
        """Begin anew, for a curl that has been told nothing."""
        self._sites.clear()

    def close(self) -> None:
        self._threads.close()

    def _look_up(self, site: Site) -> None:
        addresses: Sequence[str] = ()
        trouble = ""
        try:
            addresses = self._resolve(site.host, site.port)
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that is too long or empty
            trouble = str(error)
        try:
            self._loop.call_soon_threadsafe(self._end, site, addresses, trouble)
        except RuntimeError:
            pass  # the event loop has closed meanwhile

    def _end(self, site: Site, addresses: Sequence[str], trouble: str) -> None:
        site.found(addresses, trouble, self._loop.time())
        self._found(site)


def system_resolve(host: str, port: int) -> Sequence[str]:
    """As this machine resolves names, without doubles."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
