"""A console session that reads pages over HTTP, as a browser without scripts would."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Sequence
from typing import NamedTuple, Self
from urllib.parse import urlencode

from tests.support.http_calls import Answer, call

Fields = dict[str, object]


class Shown(NamedTuple):
    """A page, after all redirects."""

    status: int
    path: str
    headers: dict[str, str]
    source: str

    @property
    def text(self) -> str:
        """The visible text of the page: without markup, with single spaces."""
        visible = re.sub(r"<(script|title).*?</\1>", " ", self.source, flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", visible)).split())

    @property
    def said(self) -> str | None:
        """The sentence that reports the result of an action."""
        found = re.search(r'<p (?:id="told" )?class="said [^"]*"[^>]*>(.*?)</p>', self.source, re.DOTALL)
        return html.unescape(found[1]) if found else None

    @property
    def asks_why(self) -> bool:
        """Whether the page asks again for a reason, because an action was confirmed without its required reason."""
        return self.status == 422 and (self.said or "").endswith(
            "must be given for this action; it is kept in the audit log"
        )

    def field(self, name: str) -> str:
        """The value of a hidden field."""
        found = re.search(rf'name="{re.escape(name)}" value="([^"]*)"', self.source)
        assert found, f"no field {name} at {self.path}"
        return html.unescape(found[1])


class Console:
    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies: dict[str, str] = {}
        self._csrf = ""

    async def sign_in(self, key: str) -> Self:
        shown = await self.post("/console/sign-in", key=key)
        assert shown.status == 200, shown.text
        return self

    async def get(self, path: str) -> Shown:
        shown = await self._followed("GET", path, None)
        if found := re.search(r'name="csrf" value="([^"]*)"', shown.source):
            self._csrf = found[1]
        return shown

    async def post(self, path: str, fields: Fields | None = None, **more: object) -> Shown:
        """Submit a form. Includes the session's CSRF token if a page with a form was read before."""
        given = {"csrf": self._csrf} | (fields or {}) | more
        return await self._followed("POST", path, urlencode(given, doseq=True).encode())

    async def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send one request without following redirects."""
        given = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        if body is not None:
            given["Content-Type"] = "application/x-www-form-urlencoded"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await asyncio.to_thread(call, self.url, method, path, body, given)
        self._keep(answer.cookies)
        return answer

    async def _followed(self, method: str, path: str, body: bytes | None) -> Shown:
        for _ in range(5):
            answer = await self.raw(method, path, body)
            if answer.status != 303:
                return Shown(answer.status, path, dict(answer.headers), answer.body.decode())
            method, path, body = "GET", answer.headers["location"], None
        raise AssertionError(f"redirected without end, at last to {path}")

    def _keep(self, cookies: Sequence[str]) -> None:
        for cookie in cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if not self.cookies[name] or "Max-Age=0" in cookie:
                del self.cookies[name]
