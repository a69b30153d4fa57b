"""Alerts, their rules, silences, and the channels that people are told by."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from doorstep.client.answers.answer import Answered


class Alert(Answered, frozen=True, kw_only=True):
    """Something that is, or was, the matter."""

    alert_id: UUID
    rule: str
    state: str
    """`open` or `recovered`."""
    title: str
    endpoint_id: UUID | None
    endpoint_name: str
    error_code: str
    error_reason: str
    value: float | None
    threshold: float | None
    count: int
    delivery_id: UUID | None
    event_id: UUID | None
    event_type: str
    opened_at: datetime
    last_seen_at: datetime
    ended_at: datetime | None
    ended_because: str | None = None
    """`recovered`, `elapsed`, `endpoint_deleted`, `endpoint_paused` or `rule_changed`."""
    told_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    link: str


class AlertRule(Answered, frozen=True, kw_only=True):
    """When a rule fires; without an id it is built in."""

    alert_rule_id: UUID | None
    rule: str
    endpoint_id: UUID | None
    enabled: bool
    threshold: float | None
    window_seconds: float | None
    minimum: int | None
    cooldown_seconds: float


class Silence(Answered, frozen=True, kw_only=True):
    """A time in which alerts are told to nobody."""

    silence_id: UUID
    from_at: datetime
    until_at: datetime
    endpoint_id: UUID | None
    rule: str | None
    reason: str
    actor: str


class Channel(Answered, frozen=True, kw_only=True):
    """Where an organization wants to be told."""

    channel_id: UUID
    name: str
    kind: str
    target: str
    """As it may be shown."""
    rules: tuple[str, ...]
    endpoint_ids: tuple[UUID, ...]
    recoveries: bool
    state: str
    state_reason: str
    failures: int
    last_delivered_at: datetime | None
    last_error: str | None
    last_failed_at: datetime | None
    last_test: str | None
    """`waiting`, `delivered` or `failed`."""
    last_test_at: datetime | None
    created_at: datetime


class NewChannel(Channel, frozen=True, kw_only=True):
    """The only answer that holds a webhook's signing secret."""

    secret: str | None


class TestSent(Answered, frozen=True, kw_only=True):
    """A test message on its way."""

    channel_id: UUID
    message_id: UUID
