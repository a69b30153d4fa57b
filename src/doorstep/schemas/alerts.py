"""Alerts, their rules, silences, and the channels that people are notified by."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec

from doorstep.schemas.shape import (
    Answer,
    CountedPagination,
    Listing,
    ListQuery,
    Pagination,
    Reason,
    Request,
    Time,
    choice,
    told,
)

RuleName: TypeAlias = Literal[
    "dead_letter", "failure_rate", "dead_letters", "circuit_opened", "endpoint_disabled", "oldest_due"
]
ChannelKindName: TypeAlias = Literal["webhook", "slack", "email", "apprise"]
AlertState: TypeAlias = Literal["open", "recovered"]
_Rule: TypeAlias = Annotated[
    str, choice("dead_letter", "failure_rate", "dead_letters", "circuit_opened", "endpoint_disabled", "oldest_due")
]
_EndedBecause: TypeAlias = Annotated[
    str, choice("recovered", "elapsed", "endpoint_deleted", "endpoint_paused", "rule_changed")
]

# -- alerts ------------------------------------------------------------------------------------------------------


class AlertsQuery(ListQuery, frozen=True, kw_only=True):
    """Which alerts."""

    state: AlertState | None = None
    rule: RuleName | None = None
    endpoint_id: UUID | None = None


class Alert(Answer, frozen=True):
    """Something that is, or was, wrong."""

    alert_id: UUID
    rule: _Rule
    state: Annotated[str, choice("open", "recovered")]
    title: str
    endpoint_id: UUID | None
    endpoint_name: str
    error_code: str
    error_reason: str
    value: float | None
    """What was measured when it was last seen."""
    threshold: float | None
    count: int
    """How often it happened, or came back, while it was open."""
    delivery_id: UUID | None
    event_id: UUID | None
    event_type: str
    opened_at: Time
    last_seen_at: Time
    """When it was last seen to be so; of what is measured and goes on, to within a minute."""
    ended_at: Time | None
    ended_because: _EndedBecause | None
    """`recovered`: it works again; `elapsed`: it just happened, and its cooldown is over; `rule_changed`: its rule was
    turned off or reset."""
    told_at: Time | None
    """When channels were last told that it is on; null while a silence or the cooldown keeps it back."""
    acknowledged_at: Time | None
    acknowledged_by: str | None
    link: str
    """The page of the console where one can do something about it."""


class AlertPage(Listing[Alert], frozen=True):
    """One page of the alerts."""

    alerts: tuple[Alert, ...]
    pagination: Pagination


# -- rules -------------------------------------------------------------------------------------------------------


class AlertRuleIn(Request, frozen=True):
    """What is to change; what is left out stays. Without an endpoint it is for all that have no rule of their own.

    `threshold` is for `failure_rate` (0 to 100 percent), `dead_letters` (how many) and `oldest_due` (10 to 2,592,000
    seconds); `window_seconds` and `minimum` are for `failure_rate`.
    """

    rule: RuleName
    endpoint_id: UUID | None = None
    enabled: bool | None = None
    threshold: Annotated[float, told(minimum=0, maximum=1_000_000_000)] | None = None
    """It fires at more than this: percent, dead letters, or seconds."""
    window_seconds: Annotated[float, told(minimum=60, maximum=86_400)] | None = None
    """`failure_rate`: how far it looks back."""
    minimum: Annotated[int, told(minimum=1, maximum=1_000_000)] | None = None
    """`failure_rate`: with fewer deliveries than this in that time nothing is said."""
    cooldown_seconds: Annotated[float, told(minimum=60, maximum=2_592_000)] | None = None
    """For so long after it was told, the same is not told again."""


class AlertRule(Answer, frozen=True):
    """When a rule fires. `alert_rule_id` is null for a rule that is built in, and was not changed."""

    alert_rule_id: UUID | None
    rule: _Rule
    endpoint_id: UUID | None
    enabled: bool
    threshold: float | None
    window_seconds: float | None
    minimum: int | None
    cooldown_seconds: float


class AlertRulePage(Listing[AlertRule], frozen=True):
    """All of them."""

    alert_rules: tuple[AlertRule, ...]
    pagination: CountedPagination


# -- silences ----------------------------------------------------------------------------------------------------


class SilenceIn(Request, frozen=True):
    """A time in which alerts are listed and nobody is notified. It ends later than now and than `from_at`, and within 366
    days."""

    until_at: Time
    from_at: Time | None = None
    """From now on, if it is left out."""
    endpoint_id: UUID | None = None
    rule: RuleName | None = None
    reason: Reason = ""


class Silence(Answer, frozen=True):
    """A time in which nobody is notified of alerts."""

    silence_id: UUID
    from_at: Time
    until_at: Time
    endpoint_id: UUID | None
    rule: _Rule | None
    reason: str
    actor: str


class SilencePage(Listing[Silence], frozen=True):
    """All of them."""

    silences: tuple[Silence, ...]
    pagination: CountedPagination


# -- channels ----------------------------------------------------------------------------------------------------


class ChannelIn(Request, frozen=True):
    """Where to send alerts. `email` needs a mail server and `apprise` an extra, which the operator sets up."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    kind: ChannelKindName
    target: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
    """A URL; for `email`, addresses with commas between them."""
    rules: Annotated[tuple[RuleName, ...], msgspec.Meta(max_length=10)] = ()
    """Only alerts of these rules; none named: all."""
    endpoint_ids: Annotated[tuple[UUID, ...], msgspec.Meta(max_length=100)] = ()
    """Only alerts about these endpoints; none named: all."""
    recoveries: bool = True
    """Tell also when it is over."""


class Channel(Answer, frozen=True):
    """Where an organization is notified. Of the target only as much is shown as lets nobody in."""

    channel_id: UUID
    name: str
    kind: Annotated[str, choice("webhook", "slack", "email", "apprise")]
    target: str
    rules: tuple[_Rule, ...]
    endpoint_ids: tuple[UUID, ...]
    recoveries: bool
    state: Annotated[str, choice("active", "disabled")]
    """`disabled`: the receiver asked not to be called again, or has failed for days; messages wait until it is resumed."""
    state_reason: str
    failures: int
    """How many tries in a row failed; they are repeated."""
    last_delivered_at: Time | None
    """The begin of the minute in which a message last arrived, for all its addresses; after two days, of the hour."""
    last_error: str | None
    """Why a message last failed, whether it is tried again or was given up; for a week."""
    last_failed_at: Time | None
    last_test: Annotated[str, choice("waiting", "delivered", "failed")] | None
    """What came of the newest test; null where there was none lately."""
    last_test_at: Time | None
    created_at: Time


class NewChannel(Channel, frozen=True):
    """The answer to its creation: the only one that holds a webhook's signing secret."""

    secret: str | None


class ChannelPage(Listing[Channel], frozen=True):
    """All of them."""

    channels: tuple[Channel, ...]
    pagination: CountedPagination


class TestSent(Answer, frozen=True):
    """A test message on its way. Look at the channel in a moment: `last_test` says whether it arrived, and `last_error` why
    not."""

    channel_id: UUID
    message_id: UUID
