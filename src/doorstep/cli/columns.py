"""What the tables of the command line show of each thing."""

from __future__ import annotations

from typing import Any

from doorstep.cli.options import shown_span
from doorstep.cli.output import Column

EVENTS = (
    Column("event", "event_id", whole=True),
    Column("type", "event_type"),
    Column("status", "status"),
    Column("retries", "retry_attempts"),
    Column("created", "created_at", whole=True),
    Column("next retry", "next_retry_at", whole=True, spare=True),
    Column("deliveries", "deliveries", spare=True),
)
INBOX = (*EVENTS[:2], Column("created", "created_at", whole=True), Column("payload", lambda one: payload_text(one)))
DELIVERIES = (
    Column("delivery", "delivery_id", whole=True),
    Column("endpoint", "endpoint_id", whole=True, spare=True),
    Column("state", "state"),
    Column("attempts", "attempts"),
    Column("code", "response_code"),
    Column("remark", lambda one: one.held or one.remark),
)
ATTEMPTS = (
    Column("no", "number"),
    Column("started", "started_at", whole=True),
    Column("took", lambda one: f"{one.duration_ms:.0f} ms"),
    Column("code", "response_code"),
    Column("error", "error_code"),
    Column("reason", lambda one: one.error_reason + (" (late: it changed nothing)" if one.late else "")),
    Column("next retry", "next_retry_at", whole=True, spare=True),
)
HISTORY = (
    Column("at", "at", whole=True),
    Column("from", "old_state"),
    Column("to", "new_state"),
    Column("attempt", "attempt"),
    Column("note", "note"),
)
ENDPOINTS = (
    Column("endpoint", "endpoint_id", whole=True),
    Column("name", "name"),
    Column("state", "state"),
    Column("to", lambda one: one.url or one.handler),
    Column("event types", "event_types", spare=True),
    Column("policy", lambda one: policy_words(one.policy), spare=True),
)
HEALTH = (
    Column("endpoint", "name"),
    Column("state", "state"),
    Column("circuit", "circuit"),
    Column("success", lambda one: percent(one.success_rate)),
    Column("delivered", "delivered"),
    Column("dead", "dead"),
    Column("p50", lambda one: span(one.time_to_delivery["p50"]), spare=True),
    Column("p95", lambda one: span(one.time_to_delivery["p95"])),
    Column("waiting", "queue_depth"),
    Column("since", "waiting_since", whole=True, spare=True),
    Column("dead letters", "dead_letters"),
)
SLO = (
    Column("endpoint", "name"),
    Column("met", "met"),
    Column("success", lambda one: f"{percent(one.success_rate)} of {percent(one.target.success)}"),
    Column("p95", lambda one: f"{span(one.p95_seconds)} of {span(one.target.p95_seconds)}"),
    Column("oldest", lambda one: f"{span(one.oldest_seconds)} of {span(one.target.oldest_seconds)}"),
    Column("budget left", lambda one: percent(one.budget_left)),
    Column("burn 1h", lambda one: rounded(one.burn["one_hour"])),
    Column("6h", lambda one: rounded(one.burn["six_hours"])),
    Column("3d", lambda one: rounded(one.burn["three_days"])),
    Column("waits since", "waiting_since", whole=True, spare=True),
)
CIRCUIT_HISTORY = (
    Column("at", "at", whole=True),
    Column("from", "old_state"),
    Column("to", "new_state"),
    Column("reason", "reason"),
)
QUEUED = (
    Column("delivery", "delivery_id", whole=True),
    Column("type", "event_type"),
    Column("endpoint", "endpoint_name"),
    Column("state", "state", spare=True),
    Column("error", "error"),
    Column("retries", "retry_count"),
    Column("next retry", "next_retry_at", whole=True),
    Column("reason", lambda one: one.held or one.error_reason, spare=True),
)
DEAD_LETTERS = (
    Column("delivery", "delivery_id", whole=True),
    Column("type", "event_type"),
    Column("endpoint", "endpoint_name"),
    Column("error", "error"),
    Column("retries", "retry_count"),
    Column("first failed", "first_failed_at", whole=True, spare=True),
    Column("cause", "cause", whole=True, spare=True),
    Column("reason", "error_reason", spare=True),
)
GROUPS = (
    Column("cause", "cause", whole=True),
    Column("count", lambda one: f"{one.count}{'+' if one.count_is_floor else ''}"),
    Column("endpoint", "endpoint_name"),
    Column("error", "error_code"),
    Column("reason", "error_reason"),
    Column("last", "last_died_at", whole=True, spare=True),
)
BULKS = (
    Column("bulk", "bulk_id", whole=True),
    Column("kind", "kind"),
    Column("state", "state"),
    Column("progress", "progress"),
    Column("by", "actor", spare=True),
    Column("begun", "created_at", whole=True, spare=True),
    Column("note", "note", spare=True),
)
BATCHES = (
    Column("batch", "batch_id", whole=True),
    Column("type", "event_type"),
    Column("status", "status"),
    Column("attempts", "attempts"),
    Column("error", "error_code"),
    Column("next retry", "next_retry_at", whole=True),
    Column("created", "created_at", whole=True, spare=True),
    Column("reason", "error_reason", spare=True),
)
SUBMISSIONS = (
    Column("no", "number"),
    Column("at", "at", whole=True),
    Column("error", "error_code"),
    Column("reason", lambda one: (one.error_reason or "") + (" (late: it changed nothing)" if one.late else "")),
    Column("carrier", "carrier_response"),
    Column("next retry", "next_retry_at", whole=True, spare=True),
)
PIPELINES = (
    Column("pipeline", "name", whole=True),
    Column("statuses", "statuses"),
    Column("gates", "gates"),
)
ENTITIES = (
    Column("entity", "entity_id", whole=True),
    Column("status", "status"),
    Column("since", "changed_at", whole=True),
    Column("created", "created_at", whole=True, spare=True),
    Column("reason", "error_reason"),
)
ENTITY_HISTORY = (
    Column("at", "at", whole=True),
    Column("from", "old_status"),
    Column("to", "new_status"),
    Column("reason", "reason"),
    Column("event", "event_id", whole=True, spare=True),
)
ALERTS = (
    Column("alert", "alert_id", whole=True),
    Column("state", "state"),
    Column("what", "title"),
    Column("error", "error_code"),
    Column("count", "count"),
    Column("since", "opened_at", whole=True),
    Column("until", "ended_at", whole=True, spare=True),
    Column("seen by", "acknowledged_by", spare=True),
    Column("reason", "error_reason", spare=True),
)
ALERT_RULES = (
    Column("rule", "rule"),
    Column("endpoint", "endpoint_id", whole=True),
    Column("on", "enabled"),
    Column("threshold", "threshold"),
    Column("window", lambda one: span(one.window_seconds)),
    Column("minimum", "minimum"),
    Column("cooldown", lambda one: span(one.cooldown_seconds)),
    Column("id", "alert_rule_id", whole=True, spare=True),
)
SILENCES = (
    Column("silence", "silence_id", whole=True),
    Column("from", "from_at", whole=True),
    Column("until", "until_at", whole=True),
    Column("rule", "rule"),
    Column("endpoint", "endpoint_id", whole=True, spare=True),
    Column("by", "actor", spare=True),
    Column("reason", "reason"),
)
CHANNELS = (
    Column("channel", "channel_id", whole=True),
    Column("name", "name"),
    Column("kind", "kind"),
    Column("to", "target"),
    Column("state", "state"),
    Column("last delivered", "last_delivered_at"),
    Column("failures", "failures"),
    Column("last error", "last_error", spare=True),
)
WORKERS = (
    Column("worker", "name", whole=True),
    Column("state", "state"),
    Column("places", lambda one: f"{one.places_in_use} / {one.places}"),
    Column("tasks", "tasks"),
    Column("version", "version", spare=True),
    Column("since", "started_at", whole=True, spare=True),
    Column("seen", "seen_at", whole=True),
    Column("handlers", "handlers", spare=True),
)
KEYS = (
    Column("key", "key_id", whole=True),
    Column("name", "name"),
    Column("role", "role"),
    Column("begins with", "prefix"),
    Column("created", "created_at", whole=True, spare=True),
    Column("expires", "expires_at", whole=True, spare=True),
    Column("revoked", "revoked_at", whole=True, spare=True),
)
ORGS = (Column("org", "org_id", whole=True), Column("name", "name"), Column("created", "created_at", whole=True))
AUDIT = (
    Column("at", "at", whole=True),
    Column("by", "actor"),
    Column("action", "action"),
    Column("result", "result"),
    Column("reason", "reason", spare=True),
    Column("subjects", "subjects", spare=True),
)


def percent(share: float | None) -> str:
    """A share as people read it."""
    return "–" if share is None else f"{100 * share:.4g} %"


def span(seconds: float | None) -> str:
    return "–" if seconds is None else shown_span(seconds)


def rounded(number: float | None) -> str:
    return "–" if number is None else f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def policy_words(policy: Any) -> str | None:
    """A policy's name, or its pauses."""
    if policy is None:
        return None
    return policy.name or ", ".join(f"{delay:g} s" for delay in policy.delays) or "never"


def payload_text(item: Any) -> str:
    """The payload as it was accepted."""
    return bytes(item.payload_json).decode("utf-8", "replace")
