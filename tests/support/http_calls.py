"""Sends requests to the HTTP API with a client that uses no Doorstep code."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.patience import PATIENCE_SECONDS


class Answer(NamedTuple):
    """A response of the API."""

    status: int
    headers: Mapping[str, str]
    """Headers by name, in lower case."""
    body: bytes
    cookies: tuple[str, ...] = ()
    """The values of the `Set-Cookie` headers."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(url: str, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
    """Send one request on a new connection. A body that is not bytes is sent as JSON."""
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, content, dict(headers))
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        cookies = tuple(response.headers.get_all("Set-Cookie", ()))
        return Answer(response.status, headers, response.read(), cookies)
    finally:
        connection.close()
