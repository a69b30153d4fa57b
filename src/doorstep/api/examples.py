"""Examples for the OpenAPI document. They are assembled from the shapes, with one realistic value for each field
name."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

FIELDS: Json = {
    "actor": "Lena",
    "actor_id": "dsk_Qm3x8ZpL",
    "action": "endpoint.pause",
    "attempt": 2,
    "attempts": 2,
    "carrier_response": '{"code":"BUSY"}',
    "cause": "4be1c0a97f3d2e65",
    "code_map": {"E42": "RATE_LIMIT"},
    "concurrency_max": 20,
    "connect_ms": 1.8,
    "correlation_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d10",
    "count": 142,
    "cursor": None,
    "deliveries": 1,
    "delays": [60.0, 300.0, 900.0],
    "dns_ms": 0.6,
    "duration_ms": 48.2,
    "error": "SERVICE_UNAVAILABLE",
    "error_category": "transient",
    "error_code": "SERVICE_UNAVAILABLE",
    "error_detail": "",
    "error_reason": "The receiver could not handle the request (503 Service Unavailable).",
    "event_type": "order.paid",
    "event_types": ["order.*"],
    "expires_at": None,
    "first_byte_ms": 44.0,
    "give_up_on": [],
    "handler": None,
    "handlers": ["ship_order"],
    "held": None,
    "host": "web-1",
    "key": "dsk_Qm3x8ZpLw0y4mC9T1r2vXk7uJb5nHs6eGd8fAa3iOqY",
    "limit": 50,
    "metadata": {"source": "checkout"},
    "name": "shop",
    "new_state": "in_progress",
    "note": "failed: SERVICE_UNAVAILABLE, retry 1 of 3",
    "number": 1,
    "path": "/console/sign-in/3q2-7wAAbJ0Yc1sK9vXhTzR4mUe8LpQd",
    "pid": 4711,
    "places": 512,
    "places_in_use": 3,
    "payload": {"order": 1017, "total": "49.90"},
    "prefix": "dsk_Qm3x8ZpL",
    "progress": "3/5 succeeded, 2 failed",
    "public_key": None,
    "rate_per_second": 50.0,
    "reason": "the shop is back",
    "remark": "The receiver could not handle the request (503 Service Unavailable).",
    "request_headers": "content-type: application/json\nwebhook-id: 0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d01",
    "response_body": "try later",
    "response_code": 503,
    "response_headers": "content-type: text/plain",
    "result": "1 done, 0 refused",
    "retries_max": 3,
    "retry_attempts": 1,
    "retry_count": "1 / 3",
    "retry_on": [],
    "role": "operator",
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "settled_at": None,
    "failed_at": None,
    "finished_at": None,
    "revoked_at": None,
    "state_reason": "",
    "status": "queued",
    "subjects": ["0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d03"],
    "tasks": ["outbox"],
    "timeout_seconds": 10.0,
    "tls_ms": 12.4,
    "total_count": 1,
    "url": "https://shop.example/hook",
    "version": 3,
    "worker": "web-1-4711-a1b2c3",
    "event_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d01",
    "delivery_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d02",
    "endpoint_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d03",
    "batch_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d01",
    "bulk_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d04",
    "key_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d05",
    "org_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d06",
    "alert_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d07",
    "alert_rule_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d08",
    "silence_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d09",
    "channel_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d0a",
    "message_id": "0198a4f2-6c1e-7b52-8a0d-5f1b7b6c9d01",
}
_TIME = "2026-01-31T12:00:00.000000Z"
_PLAIN = {"string": "text", "integer": 0, "number": 1.0, "boolean": False, "null": None}

REQUESTS: Json = {
    "EndpointIn": {"name": "shop", "url": FIELDS["url"], "event_types": ["order.*"], "policy": "standard"},
    "EndpointPatch": {"timeout_seconds": 10, "policy": [5, 30, 300], "rate_per_second": None},
    "ApprovalIn": {"gate": "pending_review"},
    "RejectionIn": {"gate": "pending_review", "reason": "it names no sources"},
    "ReasonIn": {"reason": FIELDS["reason"]},
    "ResumeIn": {"drain_per_second": 20},
    "RotateIn": {"overlap_seconds": 3600},
    "TestIn": {"payload": {"hello": "shop"}},
    "LetterRetryIn": {"reason": "the total was missing", "payload": FIELDS["payload"]},
    "BulkQueueIn": {"filter": {"event_type": "order.*"}, "rate_per_second": 50, "reason": FIELDS["reason"]},
    "BulkLettersIn": {"filter": {"cause": FIELDS["cause"]}, "reason": FIELDS["reason"]},
    "BulkRetryIn": {"filter": {"cause": FIELDS["cause"]}, "canary": True, "reason": FIELDS["reason"]},
    "AlertRuleIn": {"rule": "failure_rate", "threshold": 2.5, "window_seconds": 600},
    "SilenceIn": {"until_at": "2026-01-31T14:00:00Z", "reason": "planned work at the shop"},
    "ChannelIn": {"name": "operators", "kind": "email", "target": "ops@shop.example"},
    "SearchFieldsIn": {"fields": ["payload.order.id", "metadata.customer"]},
    "ReplayIn": {"since": "2026-01-31T12:00:00Z", "until": "2026-01-31T13:00:00Z"},
}
"""Example bodies for routes where the required fields alone would make a poor example."""


def add_examples(described: Json) -> None:
    """Add an example to each request and each response that has none yet."""
    components = described["components"]["schemas"]
    for methods in described["paths"].values():
        for operation in methods.values():
            for part in (operation.get("requestBody", {}), *operation["responses"].values()):
                for media in part.get("content", {}).values():
                    media.setdefault("example", example_of(media["schema"], components))


def example_of(schema: Json, components: Json, name: str = "") -> Any:
    """A value that matches the schema. Objects contain only their required fields. In a response, every field is
    required, so its example is complete."""
    if "$ref" in schema:
        component = schema["$ref"].rpartition("/")[2]
        return REQUESTS[component] if component in REQUESTS else example_of(components[component], components, name)
    if schema.get("title") in REQUESTS:
        return REQUESTS[schema["title"]]
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _of_choice(schema[choice], components, name)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return FIELDS[name] if FIELDS.get(name) in schema["enum"] else schema["enum"][0]
    if schema.get("type") == "object" and "properties" in schema:
        names = schema.get("required", [])
        return {each: example_of(schema["properties"][each], components, each) for each in names}
    return _of_plain(schema, components, name)


def _of_choice(choices: list[Json], components: Json, name: str) -> Any:
    nullable = any(choice.get("type") == "null" for choice in choices)
    if nullable and name in FIELDS and FIELDS[name] is None:
        return None
    return example_of(next(choice for choice in choices if choice.get("type") != "null"), components, name)


def _of_plain(schema: Json, components: Json, name: str) -> Any:
    kind = schema.get("type")
    if name in FIELDS and FIELDS[name] is not None and _fits(FIELDS[name], kind):
        return FIELDS[name]
    if kind == "array":
        return [example_of(schema["items"], components, name.removesuffix("s"))]
    if kind == "object":
        return {}
    if schema.get("format") == "date-time":
        return _TIME
    if schema.get("format") == "uuid":
        return FIELDS["delivery_id"]
    return schema.get("default", schema.get("minimum", _PLAIN.get(str(kind), "text")))


def _fits(value: object, kind: str | None) -> bool:
    return kind is None or isinstance(value, _KINDS.get(kind, ()))


_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
