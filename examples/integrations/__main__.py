"""The server with a CRM, a partner and an ERP to try it with: `python -m examples.integrations`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from examples.integrations.endpoints import crm
from examples.serving import Running, serve


def prepare(running: Running) -> Iterator[str]:
    _, url, receiver, _ = running
    running.endpoint(**crm(f"{receiver}/crm"))
    key = running.key("it-manager", "operator")
    yield "An IT manager's key sends events, looks at the queues, and acts on them:"
    yield ""
    body = """{"event_type": "stock.counted", "payload": {"article": "A-1", "count": 5}}"""
    yield f"  curl -s {url}/v1/events -H 'X-API-Key: {key}' -d '{body}'     # goes to the ERP"
    yield f"  curl -s {url}/api/integrations/retry-queue -H 'X-API-Key: {key}'"
    yield ""
    yield f"The screens, for the same key: {url}/integrations/logs/retry-queue, {url}/integrations/logs/dead-letter-queue"
    yield f"To make the ERP fail, and to repair it: curl -X PUT {receiver}/erp -d 503   (… -d 200)"
    yield f"The CRM ({receiver}/crm) takes customer.*, the partner ({receiver}/edi) invoice.*"
    yield ""


if __name__ == "__main__":
    sys.exit(serve("examples.integrations:app", prepare, name="integrations"))
