"""The calls to the extraction service and to the archive of sources."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from doorstep import Permanent, Transient

URL = "http://127.0.0.1:8090"
"""The services of the example."""
TIMEOUT_SECONDS = 10

_open = build_opener(ProxyHandler({})).open


class Services:
    """By default, the environment says where they are. Doorstep itself recognizes a plain TimeoutError or
    ConnectionError."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url or os.environ.get("SERVICES_URL", URL)

    def extract(self, text: str) -> dict[str, Any]:
        """The number of words of a document, and the sources that it cites."""
        status, said = self._post("/extract", {"text": text})
        if status == 422:
            raise Permanent("INVALID_FORMAT", str(json.loads(said)["error"]))
        _check("The extraction service", status)
        found: dict[str, Any] = json.loads(said)
        return found

    def has_source(self, name: str) -> bool:
        status, _ = self._post(f"/sources/{quote(name, safe='')}", {})
        if status != 404:
            _check("The archive of sources", status)
        return status != 404

    def _post(self, path: str, body: object) -> tuple[int, bytes]:
        request = Request(self._url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with _open(request, timeout=TIMEOUT_SECONDS) as response:
                return response.status, response.read()
        except HTTPError as refusal:
            return refusal.code, refusal.read()


def _check(service: str, status: int) -> None:
    if status != 200:
        raise Transient("SERVICE_UNAVAILABLE", f"{service} answered {status}.")
