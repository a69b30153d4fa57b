"""Alerts and their rules, the incidents that cause them, and the channels that announce them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.endpoint import CircuitState, EndpointState
from doorstep.model.listing import BoundedQuery, PagedQuery
from doorstep.model.outbox import OutboxMessage
from doorstep.model.record import Record


class Rule(StrEnum):
    DEAD_LETTER = "dead_letter"
    """A delivery became a dead letter. Announced once per endpoint and cause; further dead letters are only counted."""
    FAILURE_RATE = "failure_rate"
    """The share of recently settled deliveries that became dead letters exceeds the threshold (percent). It is measured
    for each endpoint, and also for the organization as a whole, leaving out endpoints that have an open alert of this
    kind."""
    DEAD_LETTERS = "dead_letters"
    """There are more dead letters than the threshold."""
    CIRCUIT_OPENED = "circuit_opened"
    ENDPOINT_DISABLED = "endpoint_disabled"
    OLDEST_DUE = "oldest_due"
    """A delivery that is not held has been due for longer than the threshold (seconds)."""


OCCURRENCES = frozenset({Rule.DEAD_LETTER})
"""Rules about single occurrences, which cannot recover. An alert counts further occurrences until its cooldown ends."""
MEASURED = frozenset({Rule.FAILURE_RATE, Rule.DEAD_LETTERS, Rule.OLDEST_DUE})
"""Rules that compare a value with a threshold. The value is measured repeatedly while the alert is open."""


class Ending(StrEnum):
    """Why an alert ended."""

    RECOVERED = "recovered"
    ELAPSED = "elapsed"
    """The cooldown that follows an occurrence is over."""
    ENDPOINT_DELETED = "endpoint_deleted"
    ENDPOINT_PAUSED = "endpoint_paused"
    RULE_CHANGED = "rule_changed"
    """Its rule was disabled or reset."""


ALERT_FIRED = "alert.fired"
ALERT_RECOVERED = "alert.recovered"
"""The types of the operational events about alerts."""


class StoredConfig(Record, frozen=True, kw_only=True, tag_field="kind"):
    """The base of all alert settings. A setting that has an end time is removed some time after that."""

    org_id: UUID
    version: int = 0

    @property
    def ends_at(self) -> Instant | None:
        return None


class AlertRule(StoredConfig, frozen=True, kw_only=True, tag="rule"):
    """The settings of a rule, for an organization or one of its endpoints. The built-in settings apply until others are
    stored."""

    rule: Rule
    endpoint_id: UUID | None = None
    """None means all endpoints without a rule of their own."""
    enabled: bool = True
    threshold: float = 0.0
    """The rule fires above this value: a percentage, a number of dead letters, or seconds. Rules that are not measured
    have no threshold."""
    window_seconds: float = 0.0
    """FAILURE_RATE: the length of the time window, which always ends at the current time."""
    minimum: int = 0
    """FAILURE_RATE: the rule does not fire if the window has fewer deliveries than this."""
    cooldown_seconds: float = 3_600.0
    """The time after a notification in which the same alert is not announced again."""

    @property
    def config_id(self) -> UUID:
        """Derived from the rule and the endpoint, so that a stored rule can be replaced without a search."""
        return rule_id(self.org_id, self.rule, self.endpoint_id)


def rule_id(org_id: UUID, rule: Rule, endpoint_id: UUID | None) -> UUID:
    return uuid5(org_id, f"rule/{rule}/{endpoint_id or ''}")


class Silence(StoredConfig, frozen=True, kw_only=True, tag="silence"):
    """A period in which alerts are listed but not announced. Alerts that are open when it ends are announced then."""

    silence_id: UUID
    from_at: Instant
    until_at: Instant
    endpoint_id: UUID | None = None
    """None means every endpoint."""
    rule: Rule | None = None
    """None means every rule."""
    reason: str = ""
    actor: str = ""

    @property
    def config_id(self) -> UUID:
        return self.silence_id

    @property
    def ends_at(self) -> Instant | None:
        return self.until_at

    def covers(self, rule: Rule, endpoint_id: UUID | None, now: Instant) -> bool:
        return (
            self.from_at <= now < self.until_at
            and self.rule in (None, rule)
            and self.endpoint_id in (None, endpoint_id)
        )


class Problem(Record, frozen=True, kw_only=True):
    """The fields that an incident has in common with the alert that it causes."""

    endpoint_id: UUID | None = None
    """None if it concerns the whole organization."""
    cause: int | None = None
    """The common cause of dead letters (model/delivery.py). The first ten causes of an endpoint have their own alerts;
    all further causes share one alert, whose `cause` is None."""
    code: str = ""
    reason: str = ""
    """A sentence for operators: why the delivery failed, the circuit opened or the endpoint was disabled."""
    delivery_id: UUID | None = None
    event_id: UUID | None = None
    event_type: str = ""

    @property
    def details(self) -> dict[str, Any]:
        """The common fields by name."""
        return {name: getattr(self, name) for name in Problem.__struct_fields__}


class Alert(Problem, frozen=True, kw_only=True):
    """A current or past problem. Each subject has at most one open alert."""

    alert_id: UUID
    org_id: UUID
    rule: Rule
    opened_at: Instant
    seen_at: Instant
    """When the problem was last observed; accurate to a minute for measured rules."""
    endpoint_name: str = ""
    count: int = 1
    """How many times the problem occurred, including the times when it reopened this alert."""
    value: float | None = None
    """The measured value when the alert was last written. `threshold` is the threshold that this value exceeded."""
    threshold: float | None = None
    told: bool = False
    """Whether channels were notified that the alert is open. Only then are they notified when it ends."""
    told_at: Instant | None = None
    """When channels were last notified that the alert is open."""
    ended_at: Instant | None = None
    ended_because: Ending | None = None
    review_at: Instant | None = None
    """When to look at the alert again even if nothing happens: to measure its value, to end it, to announce it, or
    because it can no longer reopen. None means never."""
    acknowledged_at: Instant | None = None
    acknowledged_by: str = ""
    version: int = 0
    """Incremented by every write; a write names the version it was computed from."""

    @property
    def is_open(self) -> bool:
        return self.ended_at is None

    @property
    def subject(self) -> str:
        """The rule, the endpoint and the cause as one string."""
        return subject_of(self.rule, self.endpoint_id, self.cause)


def subject_of(rule: Rule, endpoint_id: UUID | None, cause: int | None = None) -> str:
    return f"{rule}/{endpoint_id or ''}/{'' if cause is None else cause}"


class AlertFilter(PagedQuery[Alert], frozen=True, kw_only=True):
    """Alerts in order of creation, newest first."""

    is_open: bool | None = None
    rule: Rule | None = None
    endpoint_id: UUID | None = None


class AlertChange(Record, frozen=True):
    """An alert to write, and the version it was computed from (0 for a new alert)."""

    alert: Alert
    expected_version: int


class AlertWrite(Record, frozen=True, kw_only=True):
    """Changes to the alerts of one organization. If another process wrote first, none of them is written."""

    org_id: UUID
    incident_keys: tuple[int, ...] = ()
    """The incidents that the changes were computed from. They are removed in the same transaction."""
    changes: tuple[AlertChange, ...] = ()
    messages: tuple[OutboxMessage, ...] = ()
    """Notifications and operational events, for the outbox."""
    entry: AuditEntry | None = None


class IncidentKind(StrEnum):
    """Most kinds are also types of operational events; see OPERATIONAL_KINDS."""

    DELIVERY_DEAD = "delivery.dead"
    CIRCUIT_OPENED = "circuit.opened"
    CIRCUIT_CLOSED = "circuit.closed"
    ENDPOINT_DISABLED = "endpoint.disabled"
    ENDPOINT_ENABLED = "endpoint.enabled"
    ENDPOINT_DELETED = "endpoint.deleted"
    ENDPOINT_PAUSED = "endpoint.paused"
    """A disabled endpoint was paused. Its alert ends, although the endpoint still does not work."""
    RULES_CHANGED = "rules.changed"
    """A rule or silence changed, so open alerts must be evaluated again."""


OPERATIONAL_KINDS = frozenset(IncidentKind) - {IncidentKind.ENDPOINT_PAUSED, IncidentKind.RULES_CHANGED}
"""The kinds that endpoints can subscribe to. The others are results of an operator's own actions."""


class Incident(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """Something that may cause an alert. It is stored until a process turns it into alerts and messages, and is removed
    in that transaction."""

    kind: IncidentKind
    org_id: UUID
    at: Instant
    attempts: int = 0
    key: int = 0
    """The number that the store assigned to the incident; never reused."""


def circuit_incident(old: CircuitState, new: CircuitState) -> IncidentKind | None:
    """The incident caused by a circuit change, if any. A failed probe causes none, because the circuit was not closed
    before the probe."""
    if old is CircuitState.CLOSED and new is CircuitState.OPEN:
        return IncidentKind.CIRCUIT_OPENED
    if old is not CircuitState.CLOSED and new is CircuitState.CLOSED:
        return IncidentKind.CIRCUIT_CLOSED
    return None


def endpoint_incident(old: EndpointState | None, new: EndpointState) -> IncidentKind | None:
    """The incident caused by an endpoint change, if any. Pausing is an operator's decision, so it usually causes no
    incident. But if the endpoint was disabled, pausing it causes an incident that ends its alert."""
    if old is None or old is new:
        return None
    if new is EndpointState.DELETED:
        return IncidentKind.ENDPOINT_DELETED
    if new is EndpointState.DISABLED:
        return IncidentKind.ENDPOINT_DISABLED
    if old is not EndpointState.DISABLED:
        return None
    return IncidentKind.ENDPOINT_PAUSED if new is EndpointState.PAUSED else IncidentKind.ENDPOINT_ENABLED


OPERATIONS_ORG = UUID("00000000-0000-7000-8000-000000000002")
"""The reserved organization that owns the endpoints and messages of channels. It has no keys and is never listed."""


class ChannelKind(StrEnum):
    WEBHOOK = "webhook"
    """A JSON request, signed according to Standard Webhooks."""
    SLACK = "slack"
    """A Slack-compatible incoming webhook: Slack, Mattermost, Rocket.Chat, Discord's `/slack` and others."""
    EMAIL = "email"
    """Sent by the SMTP server in the settings."""
    APPRISE = "apprise"
    """Any service that the Apprise library supports; runs in a separate process."""


class ChannelTest(Record, frozen=True):
    """A test message that an operator sent to a channel."""

    channel_id: UUID
    message_id: UUID
    at: Instant
    addresses: int = 0
    """The number of e-mail addresses it was sent to."""


class ChannelTests(StoredConfig, frozen=True, kw_only=True, tag="tests"):
    """The recent tests of an organization, and the last test of each channel. They are stored separately from the
    channels, so that deleting a channel does not reset the number of tests."""

    tests: tuple[ChannelTest, ...] = ()
    """Oldest first."""

    @property
    def config_id(self) -> UUID:
        """One fixed id per organization, because the tests of all its channels are in one record."""
        return uuid5(self.org_id, "channel-tests")

    def last_of(self, channel_id: UUID) -> ChannelTest | None:
        return next((one for one in reversed(self.tests) if one.channel_id == channel_id), None)


class Channel(StoredConfig, frozen=True, kw_only=True, tag="channel"):
    channel_id: UUID
    """Also the id of its endpoint in the reserved organization."""
    name: str
    means: ChannelKind
    shown: str
    """The target without its credentials, so that it can be shown. The full target is in its endpoint."""
    rules: tuple[Rule, ...] = ()
    """Announce only alerts of these rules. Empty means all rules."""
    endpoint_ids: tuple[UUID, ...] = ()
    """Announce only alerts about these endpoints. Empty means all endpoints."""
    recoveries: bool = True
    """Also announce that an alert ended."""
    created_at: Instant = 0

    @property
    def config_id(self) -> UUID:
        return self.channel_id

    def accepts(self, rule: Rule, endpoint_id: UUID | None, *, recovery: bool) -> bool:
        return (
            (not self.rules or rule in self.rules)
            and (not self.endpoint_ids or endpoint_id in self.endpoint_ids)
            and (self.recoveries or not recovery)
        )


AlertConfig = AlertRule | Silence | Channel | ChannelTests
"""The alert settings of an organization, including its channel tests. They are few and small, and are read together."""


class AlertConfigs(BoundedQuery[AlertConfig], frozen=True, kw_only=True):
    """The rules, silences, channels and channel tests of an organization, oldest first."""


class LiveAlerts(BoundedQuery[Alert], frozen=True, kw_only=True):
    """Alerts that may still be announced. First come alerts that are open or have a review time, then alerts that ended
    after `ended_after` and may reopen (alerts about single occurrences cannot). Both groups are sorted oldest first."""

    ended_after: Instant


class OrgsToReview(BoundedQuery[UUID], frozen=True, kw_only=True):
    """The organizations with an alert whose `review_at` has passed."""

    now: Instant


class OrgsWithIncidents(BoundedQuery[UUID], frozen=True, kw_only=True):
    """The organizations with incidents. The cost depends on the number of organizations, not on the number of
    incidents."""


class Incidents(BoundedQuery[Incident], frozen=True, kw_only=True):
    """The incidents of an organization that have not been processed yet, in order."""

    limit: int
