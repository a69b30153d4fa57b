"""The only URL parser. curl parses the URL both for the check and for the connection, so both see the same host.

The classic way to bypass an address check is a URL that two parsers read differently. So a URL must be plain ASCII,
curl parses it, and the normalised form is used both for storage and for the connection.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

import pycurl

from doorstep.errors import InvalidInput

Address = IPv4Address | IPv6Address

_LENGTH_MAX = 2_048
_LOOKS_RIGHT = re.compile(r"https?://[^/?#\\]", re.IGNORECASE)
_NUMERIC_LABEL = re.compile(r"(0x[0-9a-f]*|[0-9]+)$")
_LOOPBACK_NAME = re.compile(r"(.+\.)?localhost$")


class ParsedUrl(NamedTuple):
    url: str
    """The normalised URL: scheme and host in lower case, an IP address in its usual form, and no fragment."""
    scheme: str
    host: str
    port: int
    address: Address | None
    """Set if the host is an IP address, or a name such as `localhost` that always means this machine."""

    @property
    def plain(self) -> bool:
        """Whether requests are sent without TLS."""
        return self.scheme != "https"


def parse_url(url: str) -> ParsedUrl:
    """Parse the URL of an endpoint. Raises InvalidInput, which says what is wrong with the URL."""
    _check_characters(url)
    parts = _split(url)
    if parts.zoneid:
        raise _invalid("must not name a network zone")
    parts.host, parts.fragment = parts.host.lower().rstrip("."), None
    scheme: str = parts.scheme
    port = int(parts.port or (443 if scheme == "https" else 80))
    if port == 0:
        raise _invalid("must not have port 0")
    return ParsedUrl(parts.url, scheme, parts.host, port, _address_of(parts.host))


def _check_characters(url: str) -> None:
    if len(url) > _LENGTH_MAX:
        raise _invalid(f"must have at most {_LENGTH_MAX} characters, got {len(url)}")
    if not url.isascii():
        raise _invalid("must be ASCII; write the host as xn--… and percent-encode the rest")
    if not url.isprintable() or " " in url or "\\" in url:
        raise _invalid("must not hold spaces, backslashes or control characters")
    if not _LOOKS_RIGHT.match(url):
        raise _invalid("must begin with https:// (or http://) and a host")


def _split(url: str) -> pycurl.CurlUrl:
    try:
        return pycurl.CurlUrl(url, pycurl.U_DISALLOW_USER)
    except pycurl.error as error:
        # curl's message names the invalid part but never quotes it.
        raise _invalid(f"cannot be used: {error.args[1]}") from None


def _address_of(host: str) -> Address | None:
    if _LOOPBACK_NAME.match(host):
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        if _NUMERIC_LABEL.match(host.rpartition(".")[2]):
            raise _invalid("has a host that is neither a name nor a valid address") from None
        return None


def _invalid(message: str) -> InvalidInput:
    return InvalidInput("url", message)
