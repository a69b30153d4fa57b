"""Decides which URLs and addresses Doorstep may connect to. Private and special addresses must be allowed explicitly.

The decisive check is made when a connection is opened (http.py), on the actual IP address, because a host name may
resolve differently each time. Python's `is_global` is not sufficient. For example, it is true for the NAT64 form of
169.254.169.254, the address where cloud providers serve credentials. So this module has its own table.

The classic way to bypass such a check is a URL that two parsers read differently. So a URL must be plain ASCII, curl
parses it both for the check and for the connection, and its normalised form is what is stored and used.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

import pycurl

from doorstep.errors import InvalidInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressGuard:
    """Checks addresses. `allow` permits ranges. `own_addresses` (host, port) stay blocked even inside these ranges."""

    def __init__(
        self,
        allow: Sequence[Network] = (),
        allow_http: bool = False,
        own_addresses: Sequence[tuple[str, int]] = (),
    ) -> None:
        self._allow = tuple(allow)
        self.allow_http = allow_http
        self._own: set[tuple[Address, int]] = set()
        for host, port in own_addresses:
            self.refuse_own(host, port)

    def refuse_own(self, host: str, port: int) -> None:
        """Block an address that this service itself listens on, so that it cannot deliver to itself."""
        for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            self._own.add((ip_address(address[0]), port))

    @property
    def allowed(self) -> list[str]:
        """The ranges that the operator allowed, as text, to pass to a process that creates its own guard."""
        return [str(network) for network in self._allow]

    @property
    def own(self) -> list[tuple[str, int]]:
        """The addresses that this service listens on."""
        return [(str(address), port) for address, port in self._own]

    def judge(self, address: str | Address, port: int, *, plain: bool = False) -> str | None:
        """The reason why a connection to this address is blocked; None if it is allowed. `plain` means without TLS."""
        ip = _unwrapped(ip_address(address))
        if self._is_own(ip, port):
            return "this service listens there itself"
        if any(ip in network for network in self._allow):
            return None
        if reason := _special(ip):
            return reason
        return _PLAIN if plain and not self.allow_http else None

    def check_url(self, url: str) -> ParsedUrl:
        """Parse the URL of an endpoint. Raises InvalidInput if the URL is not allowed.

        A host name is not resolved here, because it may resolve differently later. Its addresses are checked whenever a
        connection is opened.
        """
        parsed = parse_url(url)
        if parsed.address is not None and (reason := self.judge(parsed.address, parsed.port)):
            # This error comes before the one about plain http, because allowing the range also allows plain http.
            raise InvalidInput("url", f"must not point to {parsed.host}: {reason}; {_HOW_TO_ALLOW}")
        if parsed.plain and not self._may_be_plain(parsed):
            raise InvalidInput("url", f"must begin with https://; {_HOW_TO_ALLOW_HTTP}")
        return parsed

    def check_plain_host(self, url: str) -> None:
        """Like `check_url`, and also resolve the host of a plain http URL. Raises InvalidInput if a connection would be
        blocked for each of its addresses. Blocks the thread during the look-up."""
        parsed = self.check_url(url)
        if not parsed.plain or parsed.address is not None:
            return
        try:
            found = socket.getaddrinfo(parsed.host, parsed.port, type=socket.SOCK_STREAM)
        except OSError:  # there may be an address later
            return
        addresses = [str(address[0]) for *_, address in found]
        reasons = {address: self.judge(address, parsed.port, plain=True) for address in addresses}
        if all(reasons.values()):
            address, reason = next(iter(reasons.items()))
            how = _HOW_TO_ALLOW_HTTP if reason == _PLAIN else _HOW_TO_ALLOW
            raise InvalidInput("url", f"must not point to {parsed.host}, which is now {address}: {reason}; {how}")

    def _may_be_plain(self, parsed: ParsedUrl) -> bool:
        """Whether a plain http URL may be allowed. A host name may resolve into an allowed range; that is checked when
        the connection is opened."""
        if parsed.address is None:
            return self.allow_http or bool(self._allow)
        return self.judge(parsed.address, parsed.port, plain=True) is None

    def _is_own(self, ip: Address, port: int) -> bool:
        if (ip, port) in self._own:
            return True
        return any(own.is_unspecified and own_port == port for own, own_port in self._own) and _is_local(ip)


_HOW_TO_ALLOW = "the operator can allow a range with DOORSTEP_ALLOW_ADDRESSES"
_HOW_TO_ALLOW_HTTP = (
    "the operator can allow plain http with DOORSTEP_ALLOW_HTTP=true, or for a range with DOORSTEP_ALLOW_ADDRESSES"
)
_PLAIN = "plain http is not allowed"

_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), reason)
    for reason, networks in {
        "an address of this network only": "0.0.0.0/8 ::/128",
        "a private address": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
        "an address shared by a carrier's customers": "100.64.0.0/10",
        "a loopback address": "127.0.0.0/8 ::1/128",
        "a link-local address (cloud metadata among them)": "169.254.0.0/16 fe80::/10",
        "a cloud provider's internal address": "168.63.129.16/32",
        "an address reserved for protocols": "192.0.0.0/24 100::/64 2001::/23 5f00::/16",
        "an address for documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
        "an address for benchmarks": "198.18.0.0/15",
        "a multicast address": "224.0.0.0/4 ff00::/8",
        "a reserved address": "240.0.0.0/4",
        "an address of a transition mechanism that can hide another": "192.88.99.0/24 ::/96 64:ff9b:1::/48 2002::/16",
    }.items()
    for network in networks.split()
)

_IPV6_PUBLIC = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def _special(ip: Address) -> str | None:
    for network, reason in _SPECIAL:
        if ip in network:
            return reason
    if isinstance(ip, IPv6Address) and ip not in _IPV6_PUBLIC:
        return "not a public address"
    return None


def _unwrapped(ip: Address) -> Address:
    """The IPv4 address inside an IPv4-mapped or NAT64 address. Other addresses are returned unchanged.

    NAT64 addresses as such are not blocked, because an IPv6-only machine reaches all IPv4 receivers through them.
    """
    if isinstance(ip, IPv4Address):
        return ip
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return IPv4Address(int(ip) & 0xFFFF_FFFF) if ip in _NAT64 else ip


def _is_local(ip: Address) -> bool:
    """Whether the address belongs to this machine. Only such addresses can be bound."""
    family = socket.AF_INET if isinstance(ip, IPv4Address) else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(ip), 0))
        except OSError:
            return False
    return True


# -- URLs ------------------------------------------------------------------------------------------------------

_LENGTH_MAX = 2_048
_LOOKS_RIGHT = re.compile(r"https?://[^/?#\\]", re.IGNORECASE)
_NUMERIC_LABEL = re.compile(r"(0x[0-9a-f]*|[0-9]+)$")
_LOOPBACK_NAME = re.compile(r"(.+\.)?localhost$")


class ParsedUrl(NamedTuple):
    url: str
    """The normalised URL: scheme and host in lower case, an IP address in its usual form, and no fragment."""
    plain: bool
    """Whether requests are sent without TLS."""
    host: str
    port: int
    address: Address | None
    """The address if the host is an IP address or a name, such as `localhost`, that always means this machine;
    otherwise None."""


def parse_url(url: str) -> ParsedUrl:
    """Parse the URL of an endpoint. Raises InvalidInput, whose message describes what is wrong with the URL."""
    _check_characters(url)
    parts = _split(url)
    if parts.zoneid:
        raise InvalidInput("url", "must not name a network zone")
    parts.host, parts.fragment = parts.host.lower().rstrip("."), None
    plain = parts.scheme != "https"
    port = int(parts.port or (80 if plain else 443))
    if port == 0:
        raise InvalidInput("url", "must not have port 0")
    return ParsedUrl(parts.url, plain, parts.host, port, _address_of(parts.host))


def _check_characters(url: str) -> None:
    if len(url) > _LENGTH_MAX:
        raise InvalidInput("url", f"must have at most {_LENGTH_MAX} characters, got {len(url)}")
    if not url.isascii():
        raise InvalidInput("url", "must be ASCII; write the host as xn--… and percent-encode the rest")
    if not url.isprintable() or " " in url or "\\" in url:
        raise InvalidInput("url", "must not contain spaces, backslashes or control characters")
    if not _LOOKS_RIGHT.match(url):
        raise InvalidInput("url", "must begin with https:// (or http://) and a host")


def _split(url: str) -> pycurl.CurlUrl:
    try:
        return pycurl.CurlUrl(url, pycurl.U_DISALLOW_USER)
    except pycurl.error as error:
        # curl's message names the invalid part but never quotes it.
        raise InvalidInput("url", f"cannot be used: {error.args[1]}") from None


def _address_of(host: str) -> Address | None:
    if _LOOPBACK_NAME.match(host):
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        if _NUMERIC_LABEL.match(host.rpartition(".")[2]):
            raise InvalidInput("url", "has a host that is neither a name nor a valid address") from None
        return None


# -- host names and reachability -------------------------------------------------------------------------------

Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a name in the order in which to try them. Raises OSError if there are none."""


def system_resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a name with the system's resolver. Duplicate addresses are removed."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def why_unreachable(
    url: str, guard: AddressGuard, timeout_seconds: float, resolve: Resolve = system_resolve
) -> str | None:
    """The reason why no connection to this URL can be made now; None if one was made."""
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
        except OSError as error:  # includes TLS errors
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
