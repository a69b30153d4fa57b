"""The server with a carrier to try it with: `python -m examples.sms`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from examples.serving import Running, serve
from examples.sms.carrier import Carrier


def prepare(running: Running) -> Iterator[str]:
    _, url, carrier, _ = running
    key = running.key("first-commands", "operator")
    body = """{"messages": [{"to": "+15550100", "text": "See you at nine."}]}"""
    yield "Submit a batch, and look at it:"
    yield ""
    yield f"  curl -s {url}/batches -H 'X-API-Key: {key}' -d '{body}'"
    yield f"  curl -s {url}/batches -H 'X-API-Key: {key}'"
    yield ""
    yield "To make the carrier fail, and to repair it:"
    yield ""
    yield f"""  curl -X PUT {carrier}/batches -d '503 {{"code": "SERVICE_UNAVAILABLE"}}'"""
    yield f"  curl -X PUT {carrier}/batches -d 200"
    yield ""


if __name__ == "__main__":
    sys.exit(serve("examples.sms:app", prepare, name="sms", counterpart_type=Carrier))
