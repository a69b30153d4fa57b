"""Alerts and their rules, the incidents that cause them, and the channels that announce them."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID, uuid5

from doorstep.clock import Instant
from doorstep.model.action import AuditEntry
from doorstep.model.circuit import CircuitState
from doorstep.model.endpoint import EndpointState
from doorstep.model.outbox import OutboxMessage
from doorstep.model.record import Record


class Rule(StrEnum):
    DEAD_LETTER = "dead_letter"
    """A delivery failed for good. Told once for an endpoint and a cause; more of it are counted."""
    FAILURE_RATE = "failure_rate"
    """Of the deliveries that tries settled lately, more than so many percent failed for good: those of an endpoint, or of
    all together that no such alert is open for."""
    DEAD_LETTERS = "dead_letters"
    """More than so many dead letters lie there now."""
    CIRCUIT_OPENED = "circuit_opened"
    ENDPOINT_DISABLED = "endpoint_disabled"
    OLDEST_DUE = "oldest_due"
    """A delivery that nothing holds has been due for more than so many seconds."""


OCCURRENCES = frozenset({Rule.DEAD_LETTER})
"""What happens and is not afterwards: nothing recovers. An alert of it counts more of the same until its cooldown ends."""
MEASURED = frozenset({Rule.FAILURE_RATE, Rule.DEAD_LETTERS, Rule.OLDEST_DUE})
"""What is above a threshold or not, and has to be measured again and again while it is."""


class Ending(StrEnum):
    """Why an alert is over."""

    RECOVERED = "recovered"
    ELAPSED = "elapsed"
    """The cooldown of something that just happened is over."""
    ENDPOINT_DELETED = "endpoint_deleted"
    ENDPOINT_PAUSED = "endpoint_paused"
    RULE_CHANGED = "rule_changed"
    """Its rule was turned off or reset."""


ALERT_FIRED = "alert.fired"
ALERT_RECOVERED = "alert.recovered"
"""The types of the operational events about alerts."""


class AlertRule(Record, frozen=True, kw_only=True, tag="rule", tag_field="kind"):
    """When a rule fires, for an organization or for one of its endpoints; a built-in one until somebody changes it."""

    org_id: UUID
    rule: Rule
    endpoint_id: UUID | None = None
    """None: for all endpoints that have no rule of their own."""
    enabled: bool = True
    threshold: float = 0.0
    """It fires at more than this: percent, dead letters or seconds. The others have none."""
    window_seconds: float = 0.0
    """FAILURE_RATE: how far it looks back."""
    minimum: int = 0
    """FAILURE_RATE: with fewer deliveries than this in that time nothing can be said."""
    cooldown_seconds: float = 3_600.0
    """For so long after it was told, the same is not told again."""
    version: int = 0

    @property
    def arrangement_id(self) -> UUID:
        """One for each rule and endpoint, so that it can be replaced without being looked for."""
        return rule_id(self.org_id, self.rule, self.endpoint_id)

    @property
    def ends_at(self) -> Instant | None:
        return None


def rule_id(org_id: UUID, rule: Rule, endpoint_id: UUID | None) -> UUID:
    return uuid5(org_id, f"rule/{rule}/{endpoint_id or ''}")


class Silence(Record, frozen=True, kw_only=True, tag="silence", tag_field="kind"):
    """A time in which alerts are listed and told to nobody. What is still on when it ends is told then."""

    silence_id: UUID
    org_id: UUID
    from_at: Instant
    until_at: Instant
    endpoint_id: UUID | None = None
    """None: those of every endpoint."""
    rule: Rule | None = None
    """None: those of every rule."""
    reason: str = ""
    actor: str = ""
    version: int = 0

    @property
    def arrangement_id(self) -> UUID:
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


class Alert(Record, frozen=True, kw_only=True):
    """One thing that is, or was, the matter. There is at most one open alert of each subject."""

    alert_id: UUID
    org_id: UUID
    rule: Rule
    opened_at: Instant
    seen_at: Instant
    """When it was last seen to be so; of what is measured and goes on, to within a minute."""
    endpoint_id: UUID | None = None
    endpoint_name: str = ""
    cause: int | None = None
    """DEAD_LETTER: what these letters have in common; None for those of an endpoint that dies of ever new causes."""
    count: int = 1
    """How often it happened, or came back, while this alert was open."""
    value: float | None = None
    """What was measured when it was last written, and the threshold that it was above of."""
    threshold: float | None = None
    code: str = ""
    reason: str = ""
    delivery_id: UUID | None = None
    event_id: UUID | None = None
    event_type: str = ""
    told: bool = False
    """Whoever listens believes that it is on: that it is over is told only then."""
    told_at: Instant | None = None
    """When it was last told that it is on."""
    ended_at: Instant | None = None
    ended_because: Ending | None = None
    review_at: Instant | None = None
    """When time alone may change something: it has to be measured, or is over, or may be told, or cannot come back any
    more. None: never."""
    acknowledged_at: Instant | None = None
    acknowledged_by: str = ""
    version: int = 0
    """Grows with every write; a write names the version it was computed from."""

    @property
    def is_open(self) -> bool:
        return self.ended_at is None

    @property
    def subject(self) -> str:
        """What it is about, as one text."""
        return subject_of(self.rule, self.endpoint_id, self.cause)


def subject_of(rule: Rule, endpoint_id: UUID | None, cause: int | None = None) -> str:
    return f"{rule}/{endpoint_id or ''}/{'' if cause is None else cause}"


class AlertFilter(Record, frozen=True, kw_only=True):
    """Which alerts of an organization."""

    is_open: bool | None = None
    rule: Rule | None = None
    endpoint_id: UUID | None = None


class AlertChange(Record, frozen=True):
    """An alert as it is to be written, over the version that it was computed from; 0 for a new one."""

    alert: Alert
    expected_version: int


class AlertWrite(Record, frozen=True, kw_only=True):
    """What one organization is told: written as a whole, or not at all where somebody else was faster."""

    org_id: UUID
    incident_keys: tuple[int, ...] = ()
    """What it was made of, to be removed."""
    changes: tuple[AlertChange, ...] = ()
    postings: tuple[OutboxMessage, ...] = ()
    """Messages and operational events, for the outbox."""
    line: AuditEntry | None = None


class IncidentKind(StrEnum):
    """Most are also the types of operational events; see OPERATIONAL_KINDS."""

    DELIVERY_DEAD = "delivery.dead"
    CIRCUIT_OPENED = "circuit.opened"
    CIRCUIT_CLOSED = "circuit.closed"
    ENDPOINT_DISABLED = "endpoint.disabled"
    ENDPOINT_ENABLED = "endpoint.enabled"
    ENDPOINT_DELETED = "endpoint.deleted"
    ENDPOINT_PAUSED = "endpoint.paused"
    """Only of one that was disabled: that is over, though nothing works again."""
    RULES_CHANGED = "rules.changed"
    """Somebody changed a rule or a silence: what is the case may mean something else now."""


OPERATIONAL_KINDS = frozenset(IncidentKind) - {IncidentKind.ENDPOINT_PAUSED, IncidentKind.RULES_CHANGED}
"""What endpoints can subscribe to. The others are somebody's own doing."""


class Incident(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Kept until somebody has turned it into alerts and messages, which removes it in the same transaction."""

    kind: IncidentKind
    org_id: UUID
    at: Instant
    endpoint_id: UUID | None = None
    """None where it is about the whole organization."""
    code: str = ""
    reason: str = ""
    """A sentence for people: why it died, opened or was disabled."""
    delivery_id: UUID | None = None
    event_id: UUID | None = None
    event_type: str = ""
    attempts: int = 0
    cause: int | None = None
    """Of a death: what it has in common with others (model/delivery.py)."""
    key: int = 0
    """The store's own number for it, never given twice."""


def circuit_incident(old: CircuitState, new: CircuitState) -> IncidentKind | None:
    """What a change of a circuit means to people. A probe that failed opens nothing: it has been open all the time."""
    if old is CircuitState.CLOSED and new is CircuitState.OPEN:
        return IncidentKind.CIRCUIT_OPENED
    if old is not CircuitState.CLOSED and new is CircuitState.CLOSED:
        return IncidentKind.CIRCUIT_CLOSED
    return None


def endpoint_incident(old: EndpointState | None, new: EndpointState) -> IncidentKind | None:
    """What a change of an endpoint means to people. A pause is somebody's own doing: it only ends what was told."""
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
"""The organization that owns the channels' endpoints and messages. No key acts for it, and no list shows it."""


class ChannelKind(StrEnum):
    WEBHOOK = "webhook"
    """An HTTP request in JSON, signed by Standard Webhooks."""
    SLACK = "slack"
    """A Slack-compatible incoming webhook (Mattermost, Rocket.Chat, Discord's `/slack` and others take the same)."""
    EMAIL = "email"
    """Over the SMTP server of the settings."""
    APPRISE = "apprise"
    """Whatever the library Apprise can reach; in a process of its own."""


class ChannelTest(Record, frozen=True):
    """A message that somebody sent to see whether it arrives."""

    channel_id: UUID
    message_id: UUID
    at: Instant
    addresses: int = 0
    """How many e-mail addresses it went to."""


class ChannelTests(Record, frozen=True, kw_only=True, tag="tests", tag_field="kind"):
    """The tests that an organization has made lately, and the last one of each channel. It is kept by itself: a channel
    that is deleted takes nothing away from how many there were."""

    org_id: UUID
    tests: tuple[ChannelTest, ...] = ()
    """Oldest first."""
    version: int = 0

    @property
    def arrangement_id(self) -> UUID:
        """One for each organization."""
        return uuid5(self.org_id, "channel-tests")

    @property
    def ends_at(self) -> Instant | None:
        return None

    def last_of(self, channel_id: UUID) -> ChannelTest | None:
        return next((one for one in reversed(self.tests) if one.channel_id == channel_id), None)


class Channel(Record, frozen=True, kw_only=True, tag="channel", tag_field="kind"):
    channel_id: UUID
    """Also the id of its endpoint in the reserved organization."""
    org_id: UUID
    name: str
    means: ChannelKind
    shown: str
    """Where it goes, as it may be shown: without what would let others in. The whole is with its endpoint."""
    rules: tuple[Rule, ...] = ()
    """Only alerts of these rules; none named: all."""
    endpoint_ids: tuple[UUID, ...] = ()
    """Only alerts about these endpoints; none named: all."""
    recoveries: bool = True
    """Tell also when it is over."""
    created_at: Instant = 0
    version: int = 0

    @property
    def arrangement_id(self) -> UUID:
        return self.channel_id

    @property
    def ends_at(self) -> Instant | None:
        return None

    def wants(self, rule: Rule, endpoint_id: UUID | None, *, recovery: bool) -> bool:
        return (
            (not self.rules or rule in self.rules)
            and (not self.endpoint_ids or endpoint_id in self.endpoint_ids)
            and (self.recoveries or not recovery)
        )


AlertConfig = AlertRule | Silence | Channel | ChannelTests
"""What an organization arranged about its alerts: few, small, and read together. What it tried out is among them."""
