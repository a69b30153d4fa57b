"""A valid request for every route of the table, so that only the caller or the id can be refused."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.support.http_calls import Answer
from tests.support.program import Program

_SPAN = {"created_from": "2020-01-01T00:00:00Z", "created_before": "2020-01-02T00:00:00Z"}
_EVERYTHING = {"all": True, "preview": True}
_INBOX = {"events": [{"event_id": str(uuid4())}]}

BODIES: dict[str, Any] = {
    "POST /v1/events": {"event_type": "matrix", "payload": 1},
    "POST /v1/events/batch": [{"event_type": "matrix", "payload": 1}],
    "POST /v1/events/{event_id}/replay": {"endpoint_id": str(uuid4())},
    "POST /v1/endpoints": {"name": "matrix", "handler": "matrix", "event_types": ["none"]},
    "PATCH /v1/endpoints/{endpoint_id}": {"name": "changed"},
    "POST /v1/endpoints/{endpoint_id}/replay": _SPAN | {"preview": True},
    "POST /v1/retry-queue/bulk-retry": _EVERYTHING,
    "POST /v1/retry-queue/bulk-skip": _EVERYTHING,
    "POST /v1/dead-letters/bulk-retry": _EVERYTHING,
    "POST /v1/dead-letters/bulk-resolve": _EVERYTHING,
    "POST /v1/dead-letters/bulk-delete": _EVERYTHING,
    "POST /v1/alert-rules": {"rule": "dead_letters", "threshold": 10},
    "POST /v1/silences": {"until_at": "2020-01-01T00:00:00Z"},
    "POST /v1/channels": {"name": "matrix", "kind": "webhook", "target": "https://192.0.2.1/hook"},
    "POST /v1/inbox/ack": _INBOX,
    "POST /v1/inbox/nack": _INBOX,
    "POST /v1/keys": {"name": "matrix", "role": "viewer"},
    "POST /v1/orgs": {"name": "matrix"},
    "PATCH /v1/orgs/{org_id}": {"name": "matrix"},
    "PUT /v1/search-fields": {"fields": ["payload.matrix"]},
}
"""Bodies of the routes that need one; the other routes are called without a body."""

NOUNS = (
    "event", "batch", "delivery", "endpoint", "bulk", "key", "entity", "alert", "alert_rule", "silence", "channel",
    "org",
)  # fmt: skip


def ask(program: Program, line: str, key: str | None, ids: dict[str, str]) -> Answer:
    """Send one request, given its line in the table of routes."""
    method, path = line.split(" ")
    return program.request(method, path.format(**ids), BODIES.get(line), key=key)


def unknown_ids() -> dict[str, str]:
    """Ids that identify nothing."""
    return {f"{noun}_id": str(uuid4()) for noun in NOUNS} | {"pipeline": str(uuid4())}
