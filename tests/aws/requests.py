"""Requests as API Gateway passes them to a function (payload format 2.0)."""

from __future__ import annotations

import base64
import json
from typing import Any


def request(method: str, path: str, key: str, body: object = None, **headers: str) -> dict[str, Any]:
    path, _, query = path.partition("?")
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"x-api-key": key, "content-type": "application/json", "host": "api.example", **headers},
        "requestContext": {
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1", "userAgent": "t"},
            "requestId": "r1",
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }
    return event if body is None else event | {"body": json.dumps(body)}


def answer(result: dict[str, Any]) -> Any:
    """The body of a function's answer."""
    body = result["body"]
    return json.loads(base64.b64decode(body) if result.get("isBase64Encoded") else body)
