"""One of everything that an organization can own."""

from __future__ import annotations

from typing import NamedTuple
from uuid import uuid4

from tests.integration.program import Answer, Program, wait_for
from tests.integration.receiver import Receiver


class Owner(NamedTuple):
    """An organization's admin, and the ids of what the organization has."""

    key: str
    ids: dict[str, str]


def furnish(program: Program, key: str, receiver: Receiver) -> Owner:
    """An endpoint, an event that is a batch, its delivery (a dead letter), a bulk operation and a key."""

    def post(path: str, body: object) -> Answer:
        answer = program.post(path, body, key=key)
        assert answer.status in (201, 202), answer.body
        return answer

    receiver.status = 400
    event_type = f"of.{uuid4().hex}"
    takes_batches = {"name": "theirs", "url": receiver.url, "event_types": [event_type], "batch": True}
    endpoint = post("/v1/endpoints", takes_batches).json
    event = post("/v1/events", {"event_type": event_type, "payload": {"private": True}}).json
    path = f"/v1/events/{event['event_id']}"
    wait_for(lambda: program.get(f"{path}/status", key=key).json["status"] == "failed")
    (delivery,) = program.get(path, key=key).json["deliveries"]
    bulk = post("/v1/dead-letters/bulk-resolve", {"delivery_ids": [str(uuid4())]}).json
    wait_for(lambda: program.get(f"/v1/bulk/{bulk['bulk_id']}", key=key).json["state"] == "finished")
    return Owner(
        key,
        {
            "event_id": event["event_id"],
            "batch_id": event["event_id"],
            "delivery_id": delivery["delivery_id"],
            "endpoint_id": endpoint["endpoint_id"],
            "bulk_id": bulk["bulk_id"],
            "key_id": post("/v1/keys", {"name": "theirs", "role": "viewer"}).json["key_id"],
        },
    )
