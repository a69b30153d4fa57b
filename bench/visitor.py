"""A user of the console: signs in with the key, and requests pages over one keep-alive connection."""

from __future__ import annotations

import html
import http.client
import re
import time
from typing import NamedTuple
from urllib.parse import urlencode

from bench.setting import ADMIN_KEY

_NEXT = re.compile(r'href="([^"]*)" rel="next"')


class Seen(NamedTuple):
    """A page, and the time from the first byte sent to the last byte received."""

    milliseconds: float
    content: bytes

    @property
    def next(self) -> str | None:
        """The link to the next page of its list."""
        found = _NEXT.search(self.content.decode())
        return html.unescape(found[1]) if found else None


class Visitor:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Cookie": self._sign_in()}

    def see(self, path: str) -> Seen:
        """Request a page and follow its redirect, if any. Raises RuntimeError for any other response."""
        started = time.perf_counter()
        self._connection.request("GET", path, headers=self._headers)
        response = self._connection.getresponse()
        content = response.read()
        taken = 1_000 * (time.perf_counter() - started)
        if response.status not in (200, 303):
            raise RuntimeError(f"{path} was answered {response.status}: {content[-2_000:].decode()}")
        return Seen(taken, content)

    def close(self) -> None:
        self._connection.close()

    def _sign_in(self) -> str:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", "/console/sign-in", urlencode({"key": ADMIN_KEY}), kind)
        response = self._connection.getresponse()
        response.read()
        cookie = response.headers["Set-Cookie"]
        if response.status != 303 or cookie is None:
            raise RuntimeError(f"signing in was answered {response.status}")
        return str(cookie.partition(";")[0])
