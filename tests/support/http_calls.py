"""Requests to the HTTP API by a client that knows nothing of Doorstep."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.patience import PATIENCE_SECONDS


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    cookies: tuple[str, ...] = ()
    """Each as the header `Set-Cookie` says it."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(url: str, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
    """One request on a connection of its own. A body that is not bytes is sent as JSON."""
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
