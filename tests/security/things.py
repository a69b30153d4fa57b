"""One of everything that an organization can own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import uuid4

from tests.support.http_calls import Answer
from tests.support.program import Program, wait_for
from tests.support.receiver import Receiver


class Owner(NamedTuple):
    """An organization's admin key, and the ids of the organization's things."""

    key: str
    ids: dict[str, str]


def furnish(program: Program, key: str, receiver: Receiver) -> Owner:
    """Create an endpoint, a batch with a dead letter (and so an alert), a bulk operation, a key and alert settings."""

    def post(path: str, body: object) -> Answer:
        answer = program.post(path, body, key=key)
        assert answer.status in (200, 201, 202), answer.body
        return answer

    receiver.status = 400
    event_type = f"of.{uuid4().hex}"
    told_by = {"name": "theirs", "kind": "webhook", "target": receiver.url, "rules": ["oldest_due"]}
    takes_batches = {"name": "theirs", "url": receiver.url, "event_types": [event_type], "batch": True}
    endpoint = post("/v1/endpoints", takes_batches).json
    event = post("/v1/events", {"event_type": event_type, "payload": {"private": True}}).json
    path = f"/v1/events/{event['event_id']}"
    wait_for(lambda: program.get(f"{path}/status", key=key).json["status"] == "failed")
    (delivery,) = program.get(path, key=key).json["deliveries"]
    bulk = post("/v1/dead-letters/bulk-resolve", {"delivery_ids": [str(uuid4())]}).json
    wait_for(lambda: program.get(f"/v1/bulk/{bulk['bulk_id']}", key=key).json["state"] == "finished")
    wait_for(lambda: program.get("/v1/alerts", key=key).json["alerts"])
    return Owner(
        key,
        {
            "event_id": event["event_id"],
            "batch_id": event["event_id"],
            "delivery_id": delivery["delivery_id"],
            "endpoint_id": endpoint["endpoint_id"],
            "bulk_id": bulk["bulk_id"],
            "alert_id": program.get("/v1/alerts", key=key).json["alerts"][0]["alert_id"],
            "alert_rule_id": post("/v1/alert-rules", {"rule": "oldest_due", "threshold": 60}).json["alert_rule_id"],
            "silence_id": post("/v1/silences", {"until_at": _soon(), "rule": "oldest_due"}).json["silence_id"],
            "channel_id": post("/v1/channels", told_by).json["channel_id"],
            "key_id": post("/v1/keys", {"name": "theirs", "role": "viewer"}).json["key_id"],
        },
    )


def _soon() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()
