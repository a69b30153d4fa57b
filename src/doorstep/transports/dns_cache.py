"""A cache of parsed URLs and resolved host names: each name is resolved once a minute, by one thread at a time.

curl could resolve names itself, but it uses at most 20 threads, two per name. With curl's resolver, ten names whose
name servers did not respond would therefore block all other lookups until the ten had timed out. With this cache, such
a name delays only the attempts that need it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from doorstep.transports.address_guard import Resolve, parse_url
from doorstep.transports.shortages import shortage_now
from doorstep.transports.threads import DaemonThreads

_FRESH_SECONDS = 60.0
_USABLE_SECONDS = 600.0
"""How long known addresses are used while lookups fail: a receiver may still work when its name servers do not."""
_PAUSE_SECONDS = 5.0
"""The pause before the next lookup after one has failed, while the known addresses are still usable."""
_SITES_MAX = 50_000
_THREADS_MAX = 256
"""The number of lookups that may hang before others have to wait. An idle thread ends after a few seconds."""


class Name:
    """A host name and port, with its known addresses. If the host is an IP address, it is never looked up."""

    __slots__ = (
        "_addresses",
        "curl_knows",
        "fresh_until",
        "host",
        "is_resolving",
        "port",
        "shortage",
        "trouble",
        "usable_until",
    )

    def __init__(self, host: str, port: int, is_address: bool) -> None:
        self.host = host
        self.port = port
        self.fresh_until = self.usable_until = math.inf if is_address else -math.inf
        self.is_resolving = False
        """Whether a lookup is in progress."""
        self.trouble = ""
        """Why the last lookup failed; empty if it succeeded."""
        self.shortage = ""
        """What this process lacked, if that made the last lookup fail."""
        self.curl_knows = is_address
        """Whether the addresses have been passed to curl."""
        self._addresses: tuple[str, ...] = ()

    @property
    def pinned(self) -> str:
        """The addresses in the format of curl's RESOLVE option."""
        addresses = ",".join(f"[{one}]" if ":" in one else one for one in self._addresses)
        return f"{self.host}:{self.port}:{addresses}"

    def found(self, addresses: Sequence[str], trouble: str, shortage: str, now: float) -> None:
        self.is_resolving = False
        self.trouble = trouble
        self.shortage = shortage
        if trouble:
            self.fresh_until = now + _PAUSE_SECONDS
            return
        self.curl_knows = self.curl_knows and tuple(addresses) == self._addresses
        self._addresses = tuple(addresses)
        self.fresh_until, self.usable_until = now + _FRESH_SECONDS, now + _USABLE_SECONDS


class ResolvedUrl(NamedTuple):
    """A parsed URL with its host name."""

    url: str
    plain: bool
    name: Name


class DnsCache:
    """The URLs in use and their host names. `found` is called on the event loop when a lookup has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resolve: Resolve, found: Callable[[Name], None]) -> None:
        self._loop = loop
        self._resolve = resolve
        self._found = found
        self._sites: dict[str, ResolvedUrl] = {}
        self._names: dict[tuple[str, int], Name] = {}
        self._threads = DaemonThreads(_THREADS_MAX)

    def site(self, target: str) -> ResolvedUrl:
        """The parsed target. Raises InvalidInput if it is not an HTTP URL."""
        return self._sites.get(target) or self._new_site(target)

    def is_usable(self, name: Name, now: float) -> bool:
        """Whether attempts can start without waiting for a lookup. Starts a lookup if the addresses are old."""
        if min(name.fresh_until, name.usable_until) <= now and not name.is_resolving:
            name.is_resolving = True
            self._threads.call(partial(self._look_up, name), partial(self._end, name), self._loop)
        return name.usable_until > now

    def forget_curl(self) -> None:
        """Record that curl no longer knows any addresses, because it has a new multi handle."""
        for name in self._names.values():
            name.curl_knows = name.usable_until == math.inf

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

    def _look_up(self, name: Name) -> tuple[Sequence[str], str, str]:
        """The addresses of a name, why the lookup failed, and what this process lacked. Runs in a thread, because it may
        take a long time."""
        try:
            return self._resolve(name.host, name.port), "", ""
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that is too long or empty
            return (), str(error), shortage_now()  # the resolver reports a shortage as an unknown name

    def _end(self, name: Name, found: tuple[Sequence[str], str, str]) -> None:
        name.found(*found, self._loop.time())
        self._found(name)
