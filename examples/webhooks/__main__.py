"""The server with a receiver and a webhook to try it with: `python -m examples.webhooks`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from examples.serving import Running, serve


def prepare(running: Running) -> Iterator[str]:
    _, url, receiver, _ = running
    running.endpoint(name="billing", url=f"{receiver}/billing", event_types=["order.*"])
    key = running.key("first-commands", "operator")
    yield "Send an event to the webhook `billing`, and look at its delivery:"
    yield ""
    body = """{"event_type": "order.paid", "payload": {"order": 1}}"""
    yield f"  curl -s {url}/v1/events -H 'X-API-Key: {key}' -d '{body}'"
    yield f"  curl -s {url}/webhook-deliveries -H 'X-API-Key: {key}'"
    yield ""
    yield f"To make billing fail, and to repair it: curl -X PUT {receiver}/billing -d 503   (… -d 200)"
    yield ""


if __name__ == "__main__":
    sys.exit(serve("examples.webhooks:app", prepare, name="webhooks"))
