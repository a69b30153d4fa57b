"""Alerts, their rules, silences, and notification channels."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args
from uuid import UUID

import msgspec

from doorstep.schemas.shape import (
    Answer,
    CountedListing,
    Listing,
    ListQuery,
    Reason,
    Request,
    Time,
    choice,
    stated,
)

RuleName: TypeAlias = Literal[
    "dead_letter", "failure_rate", "dead_letters", "circuit_opened", "endpoint_disabled", "oldest_due"
]
ChannelKindName: TypeAlias = Literal["webhook", "slack", "email", "apprise"]
AlertState: TypeAlias = Literal["open", "recovered"]
_Rule: TypeAlias = Annotated[str, choice(*get_args(RuleName))]

# -- alerts ------------------------------------------------------------------------------------------------------


class AlertsQuery(ListQuery, frozen=True, kw_only=True):
    """Filters of the alerts."""

    state: AlertState | None = None
    rule: RuleName | None = None
    endpoint_id: UUID | None = None


class Alert(Answer, frozen=True):
    """A problem, current or past."""

    alert_id: UUID
    rule: _Rule
    state: Annotated[str, choice(*get_args(AlertState))]
    title: str
    endpoint_id: UUID | None
    endpoint_name: str
    error_code: str
    error_reason: str
    value: float | None
    """The last measured value."""
    threshold: float | None
    count: int
    """How many times the problem occurred or recurred while the alert was open."""
    delivery_id: UUID | None
    event_id: UUID | None
    event_type: str
    opened_at: Time
    last_seen_at: Time
    """When the problem was last observed. For alerts with a measured value, this is accurate to a minute."""
    ended_at: Time | None
    ended_because: (
        Annotated[str, choice("recovered", "elapsed", "endpoint_deleted", "endpoint_paused", "rule_changed")] | None
    )
    """`recovered`: the problem is over. `elapsed`: the cooldown after a single occurrence has ended. `rule_changed`:
    the alert's rule was turned off or reset."""
    told_at: Time | None
    """When channels were last notified of the alert; null while a silence or the cooldown prevents notifications."""
    acknowledged_at: Time | None
    acknowledged_by: str | None
    link: str
    """The console page on which to handle the alert."""


class AlertPage(Listing[Alert], frozen=True):
    """One page of the alerts."""

    alerts: tuple[Alert, ...]


# -- rules -------------------------------------------------------------------------------------------------------


class AlertRuleIn(Request, frozen=True):
    """The fields to change; omitted fields keep their value. Without `endpoint_id`, the change applies to all endpoints
    that have no rule of their own.

    `threshold` is for `failure_rate` (0 to 100 percent), `dead_letters` (how many) and `oldest_due` (10 to 2,592,000
    seconds); `window_seconds` and `minimum` are for `failure_rate`.
    """

    rule: RuleName
    endpoint_id: UUID | None = None
    enabled: bool | None = None
    threshold: Annotated[float, stated(minimum=0, maximum=1_000_000_000)] | None = None
    """The rule fires above this value, which is a percentage, a number of dead letters, or seconds."""
    window_seconds: Annotated[float, stated(minimum=60, maximum=86_400)] | None = None
    """`failure_rate`: the time window."""
    minimum: Annotated[int, stated(minimum=1, maximum=1_000_000)] | None = None
    """`failure_rate`: the rule does not fire if there are fewer deliveries than this in the window."""
    cooldown_seconds: Annotated[float, stated(minimum=60, maximum=2_592_000)] | None = None
    """The minimum time between two notifications of the same alert."""


class AlertRule(Answer, frozen=True):
    """When a rule fires. `alert_rule_id` is null for an unchanged built-in rule."""

    alert_rule_id: UUID | None
    rule: _Rule
    endpoint_id: UUID | None
    enabled: bool
    threshold: float | None
    window_seconds: float | None
    minimum: int | None
    cooldown_seconds: float


class AlertRulePage(CountedListing[AlertRule], frozen=True):
    """All alert rules, on one page."""

    alert_rules: tuple[AlertRule, ...]


# -- silences ----------------------------------------------------------------------------------------------------


class SilenceIn(Request, frozen=True):
    """A period in which alerts are listed but nobody is notified. It must end in the future, after `from_at`, and no
    later than 366 days from now."""

    until_at: Time
    from_at: Time | None = None
    """The start of the silence; now, if omitted."""
    endpoint_id: UUID | None = None
    rule: RuleName | None = None
    reason: Reason = ""


class Silence(Answer, frozen=True):
    """A period in which nobody is notified of alerts."""

    silence_id: UUID
    from_at: Time
    until_at: Time
    endpoint_id: UUID | None
    rule: _Rule | None
    reason: str
    actor: str
    """The name of the key, or of the service or person, that created the silence."""
    actor_id: str
    """The visible prefix of the key; the same as `actor` if it was not a key."""


class SilencePage(CountedListing[Silence], frozen=True):
    """All silences, on one page."""

    silences: tuple[Silence, ...]


# -- channels ----------------------------------------------------------------------------------------------------


class ChannelIn(Request, frozen=True):
    """Where to send alerts. `email` needs a configured mail server; `apprise` needs the package extra of the same
    name."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    kind: ChannelKindName
    target: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
    """A URL; for `email`, addresses separated by commas."""
    rules: Annotated[tuple[RuleName, ...], msgspec.Meta(max_length=10)] = ()
    """Only alerts of these rules; empty means all."""
    endpoint_ids: Annotated[tuple[UUID, ...], msgspec.Meta(max_length=100)] = ()
    """Only alerts about these endpoints; empty means all."""
    recoveries: bool = True
    """Also notify when an alert ends."""


class Channel(Answer, frozen=True):
    """A notification channel of an organization. Its target is shown without credentials."""

    channel_id: UUID
    name: str
    kind: Annotated[str, choice(*get_args(ChannelKindName))]
    target: str
    rules: tuple[_Rule, ...]
    endpoint_ids: tuple[UUID, ...]
    recoveries: bool
    state: Annotated[str, choice("active", "disabled")]
    """`disabled`: the receiver asked to get no more requests, or it has been failing for days. Messages wait until the
    channel is resumed."""
    state_reason: str
    failures: int
    """The number of consecutive failed attempts."""
    last_delivered_at: Time | None
    """When a message last reached all addresses of the channel. Accurate to the minute for two days, then to the
    hour."""
    last_error: str | None
    """The reason for the last failed attempt to send a message. It is kept for a week."""
    last_failed_at: Time | None
    last_test: Annotated[str, choice("waiting", "delivered", "failed")] | None
    """The result of the newest test; null if there was no recent test."""
    last_test_at: Time | None
    created_at: Time


class NewChannel(Channel, frozen=True):
    """The response to a request that creates a channel. Only this response contains the signing secret of a webhook."""

    secret: str | None


class ChannelPage(CountedListing[Channel], frozen=True):
    """All channels, on one page."""

    channels: tuple[Channel, ...]


class ChannelKind(Answer, frozen=True):
    """A kind of channel, and whether channels of this kind can be created on this server."""

    kind: Annotated[str, choice(*get_args(ChannelKindName))]
    available: bool
    reason: str | None
    """Why it is not available, and what the operator of the server can do about it."""


class ChannelKindPage(CountedListing[ChannelKind], frozen=True):
    """All kinds of channels, on one page."""

    kinds: tuple[ChannelKind, ...]


class TestSent(Answer, frozen=True):
    """A test message was sent. Read the channel after a moment: `last_test` shows whether the message arrived and, if
    it did not, `last_error` shows why."""

    channel_id: UUID
    message_id: UUID
