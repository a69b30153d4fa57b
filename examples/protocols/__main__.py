"""The server with an extraction service to try it with: `python -m examples.protocols`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from secrets import token_hex

from examples.protocols.extraction import Extraction
from examples.serving import Running, serve


def prepare(running: Running) -> Iterator[str]:
    _, url, services, _ = running
    key = running.key("first-commands", "operator")
    protocol_id = f"A-{token_hex(3)}"  # a new one at each start
    body = f'''{{"protocol_id": "{protocol_id}", "text": "Open the valve, as in [pump]."}}'''
    yield "Upload a document, look at it, and approve it:"
    yield ""
    yield f"  curl -s {url}/protocols -H 'X-API-Key: {key}' -d '{body}'"
    yield f"  curl -s {url}/protocols/{protocol_id} -H 'X-API-Key: {key}'"
    yield f"  curl -s -X POST {url}/protocols/{protocol_id}/approve -H 'X-API-Key: {key}'"
    yield ""
    yield f"To make the extraction fail, and to repair it: curl -X PUT {services}/extract -d 503   (… -d 200)"
    yield ""


if __name__ == "__main__":
    sys.exit(serve("examples.protocols:app", prepare, name="protocols", counterpart_type=Extraction))
