"""The server with a receiver, a user and an endpoint to try it with: `python -m examples.triggers`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from examples.serving import Running, serve


def prepare(running: Running) -> Iterator[str]:
    admin, url, receiver, _ = running
    if running.endpoint(name="automation", url=f"{receiver}/automation", event_types=["lead.*"]):
        admin.alert_rules.set("oldest_due", threshold=3_600)
        admin.alert_rules.set("dead_letters", threshold=0)
    key = running.key("ada", "consumer", user_id="ada")
    send = f"curl -s {url}/v1/events -H 'X-API-Key: {key}'"
    yield "Ada's key sends events, reads their status, and reads and acknowledges the inbox:"
    yield ""
    yield f"""  {send} -d '{{"event_type": "lead.created", "payload": {{"lead": 1}}}}'     # goes to the automation"""
    yield f"""  {send} -d '{{"event_type": "form.sent", "payload": {{"form": 1}}}}'        # goes to the inbox"""
    yield f"  curl -s {url}/v1/inbox -H 'X-API-Key: {key}'"
    yield ""
    yield f"To make the automation fail, and to repair it: curl -X PUT {receiver}/automation -d 503   (… -d 200)"
    yield ""


if __name__ == "__main__":
    sys.exit(serve("examples.triggers:app", prepare, name="triggers"))
