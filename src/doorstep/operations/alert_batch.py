"""How a batch of incidents and measurements changes the alerts of one organization. No I/O: the result is an
`AlertWrite`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import Instant
from doorstep.model.alert import (
    ALERT_FIRED,
    ALERT_RECOVERED,
    OCCURRENCES,
    OPERATIONAL_KINDS,
    OPERATIONS_ORG,
    Alert,
    AlertChange,
    AlertWrite,
    Channel,
    ChannelKind,
    Ending,
    Incident,
    IncidentKind,
    Rule,
    subject_of,
)
from doorstep.model.attempt import Code
from doorstep.model.outbox import OutboxMessage, OutboxOptions
from doorstep.model.record import uuid7
from doorstep.operations.endpoints import EndpointNames
from doorstep.policy.alert_messages import message_about, operational_payload, payload_for
from doorstep.policy.alerts import News, Observation, Rules, Step, after, ended, reviewed

CAUSES_MAX = 10
"""How many causes of an endpoint's dead letters get their own alert. All further causes share one alert."""
MESSAGE = "doorstep.message"
"""The event type of messages to channels."""
OPERATIONAL = frozenset({*OPERATIONAL_KINDS, ALERT_FIRED, ALERT_RECOVERED})
"""The types of operational events. If such an event cannot be delivered, no operational event reports that failure.
Otherwise each failure would cause another event, without end."""

_CONDITIONS = {
    IncidentKind.CIRCUIT_OPENED: (Rule.CIRCUIT_OPENED, None),
    IncidentKind.CIRCUIT_CLOSED: (Rule.CIRCUIT_OPENED, Ending.RECOVERED),
    IncidentKind.ENDPOINT_DISABLED: (Rule.ENDPOINT_DISABLED, None),
    IncidentKind.ENDPOINT_ENABLED: (Rule.ENDPOINT_DISABLED, Ending.RECOVERED),
    IncidentKind.ENDPOINT_PAUSED: (Rule.ENDPOINT_DISABLED, Ending.ENDPOINT_PAUSED),
}
"""For each kind of incident: the rule whose condition it starts or ends, and how the condition ends. The second value
is None if the incident starts the condition."""


class AlertBatch:
    """The alerts of one organization as they were read, and the changes to them."""

    def __init__(
        self,
        org_id: UUID,
        rules: Rules,
        channels: Sequence[Channel],
        alerts: Iterable[Alert],
        now: Instant,
        names: EndpointNames,
        console: str,
    ) -> None:
        self.org_id = org_id
        self.rules = rules
        self.now = now
        self._channels = channels
        self._names = names
        self._console = console
        self._newest: dict[str, Alert] = {}
        for alert in sorted(alerts, key=lambda one: (one.is_open, one.opened_at)):
            self._newest[alert.subject] = alert
        self._versions = {alert.alert_id: alert.version for alert in self._newest.values()}
        self._causes = Counter(one.endpoint_id for one in self._newest.values() if _is_open_cause(one))
        self._changed: dict[UUID, Alert] = {}
        self._messages: list[OutboxMessage] = []
        self._incident_keys: list[int] = []

    # -- input ---------------------------------------------------------------------------------------------

    def add_incident(self, incident: Incident) -> None:
        """Process an incident, which may become an operational event and may start or end alerts."""
        self._incident_keys.append(incident.key)
        if incident.kind in OPERATIONAL_KINDS and incident.event_type not in OPERATIONAL:
            self._post_operational(incident)
        if incident.kind is IncidentKind.DELIVERY_DEAD:
            if incident.code != Code.SKIPPED:  # the operator who skipped it knows already
                self._observe(self._dead_letter(incident))
        elif incident.kind is IncidentKind.ENDPOINT_DELETED:
            self._end_deleted()
        elif incident.kind in _CONDITIONS:
            self._apply_condition(incident, *_CONDITIONS[incident.kind])

    def add_condition(self, rule: Rule, endpoint_id: UUID, reason: str) -> None:
        """Add a condition that currently applies to an endpoint, no matter when it began. For a rule that was just
        changed, the condition counts as new."""
        name = self._names.name(endpoint_id)
        self._observe(Observation(rule=rule, on=True, endpoint_id=endpoint_id, endpoint_name=name, reason=reason))

    def add_measurement(self, rule: Rule, endpoint_id: UUID | None, on: bool, value: float) -> None:
        """Add the current value of a measurement, and whether it is above its threshold."""
        name = self._names.name(endpoint_id)
        self._observe(Observation(rule=rule, on=on, value=value, endpoint_id=endpoint_id, endpoint_name=name))

    def review(self) -> None:
        """Apply the changes to alerts that result only from the passage of time or from a changed rule."""
        self._end_deleted()
        for alert in list(self._newest.values()):
            self._apply(reviewed(alert, self.rules, self.now))

    # -- state ---------------------------------------------------------------------------------------------

    def is_on(self, rule: Rule, endpoint_id: UUID | None) -> bool:
        return self.on_since(rule, endpoint_id) is not None

    def on_since(self, rule: Rule, endpoint_id: UUID | None) -> Instant | None:
        """When the open alert of a rule began; None if no alert is open."""
        known = self._open(subject_of(rule, endpoint_id))
        return None if known is None else known.opened_at

    def endpoints_with(self, rule: Rule, at: Instant | None = None) -> set[UUID]:
        """The endpoints with an open alert of a rule; with `at`, only those whose alert was open at that instant."""
        found = (one for one in self._newest.values() if one.is_open and one.rule is rule)
        ids = (one.endpoint_id for one in found if at is None or one.opened_at <= at)
        return {endpoint_id for endpoint_id in ids if endpoint_id is not None}

    def departed_with(self, rule: Rule, since: Instant) -> set[UUID]:
        """The endpoints whose alert of a rule ended after `since` because the endpoint was deleted."""
        recent = (one for one in self._newest.values() if one.rule is rule and (one.ended_at or 0) > since)
        ids = (one.endpoint_id for one in recent if one.ended_because is Ending.ENDPOINT_DELETED)
        return {endpoint_id for endpoint_id in ids if endpoint_id is not None}

    def _open(self, subject: str) -> Alert | None:
        known = self._newest.get(subject)
        return known if known is not None and known.is_open else None

    def is_deleted(self, endpoint_id: UUID | None) -> bool:
        return endpoint_id is not None and not self._names.exists(endpoint_id)

    def write(self) -> AlertWrite:
        """All changes, messages and processed incidents, to be written in one transaction."""
        ended_first = sorted(self._changed.values(), key=lambda one: one.is_open)
        changes = (AlertChange(one, self._versions.get(one.alert_id, 0)) for one in ended_first)
        return AlertWrite(
            org_id=self.org_id,
            incident_keys=tuple(self._incident_keys),
            changes=tuple(changes),
            messages=tuple(self._messages),
        )

    # -- alerts --------------------------------------------------------------------------------------------

    def _observe(self, observation: Observation) -> None:
        """Apply an observation. A deleted endpoint gets no new alerts, except for its last dead letters."""
        if observation.on and observation.rule not in OCCURRENCES and self.is_deleted(observation.endpoint_id):
            return
        known = self._open(observation.subject)
        if known is not None and known.rule in OCCURRENCES:
            self._apply(reviewed(known, self.rules, self.now))  # if it has ended, a new alert starts
        newest = self._newest.get(observation.subject)
        self._apply(after(newest, observation, self.rules, self.now, uuid7(self.now)))

    def _apply_condition(self, incident: Incident, rule: Rule, ending: Ending | None) -> None:
        if ending is None:
            self._observe(self._observation(incident, rule))
            return
        if known := self._open(subject_of(rule, incident.endpoint_id)):
            self._apply(ended(known, ending, self.rules, self.now))

    def _apply(self, step: Step | None) -> None:
        if step is None:
            return
        alert, before = step.alert, self._newest.get(step.alert.subject)
        self._causes[alert.endpoint_id] += _is_open_cause(alert) - (before is not None and _is_open_cause(before))
        self._newest[alert.subject] = self._changed[alert.alert_id] = alert
        if step.news is not None:
            self._post_news(alert, step.news)

    def _end_deleted(self) -> None:
        """End the alerts about conditions of deleted endpoints."""
        for alert in list(self._newest.values()):
            if alert.is_open and alert.rule not in OCCURRENCES and self.is_deleted(alert.endpoint_id):
                self._apply(ended(alert, Ending.ENDPOINT_DELETED, self.rules, self.now))

    def _dead_letter(self, incident: Incident) -> Observation:
        observation = self._observation(incident, Rule.DEAD_LETTER, incident.cause)
        if self._open(observation.subject) or self._causes[incident.endpoint_id] < CAUSES_MAX:
            return observation
        return replace(observation, cause=None)

    def _observation(self, incident: Incident, rule: Rule, cause: int | None = None) -> Observation:
        return Observation(
            rule=rule,
            on=True,
            endpoint_name=self._names.name(incident.endpoint_id),
            **incident.details | {"cause": cause},
        )

    # -- messages and operational events -------------------------------------------------------------------

    def _post_news(self, alert: Alert, news: News) -> None:
        """Post one message for each channel that subscribes to the alert. The messages of one alert stay in order."""
        words = message_about(alert, news, self._console)
        recovery, order = news is News.RECOVERED, str(alert.alert_id)
        for channel in self._channels:
            if channel.accepts(alert.rule, alert.endpoint_id, recovery=recovery):
                payload = payload_for(channel.means, words)
                message_id = _message_id(channel.channel_id, alert, news)
                self._post(message_id, OPERATIONS_ORG, MESSAGE, payload, (channel.channel_id,), order)
        if alert.event_type not in OPERATIONAL:
            payload = payload_for(ChannelKind.WEBHOOK, words)
            event_type = ALERT_RECOVERED if recovery else ALERT_FIRED
            event_id = _message_id(self.org_id, alert, news)
            self._post_to_subscribers(event_id, event_type, payload, alert.endpoint_id, order)

    def _post_operational(self, incident: Incident) -> None:
        """Post the operational event for an incident. Events about an endpoint's state stay in order. Events about dead
        letters do not: each concerns a different delivery, and one undeliverable event must not block thousands of
        others."""
        event_id = _event_id(incident.at, self.org_id, f"incident/{incident.key}")
        order = None if incident.kind is IncidentKind.DELIVERY_DEAD else str(incident.endpoint_id)
        self._post_to_subscribers(event_id, incident.kind, operational_payload(incident), incident.endpoint_id, order)

    def _post_to_subscribers(
        self, event_id: UUID, event_type: str, payload: bytes, about: UUID | None, order: str | None
    ) -> None:
        """Post an event if it has subscribers. Without subscribers it would end up in the inbox."""
        if endpoint_ids := self._names.subscribers(event_type, about):
            self._post(event_id, self.org_id, event_type, payload, endpoint_ids, order)

    def _post(
        self,
        event_id: UUID,
        org_id: UUID,
        event_type: str,
        payload: bytes,
        endpoint_ids: tuple[UUID, ...],
        ordering_key: str | None = None,
    ) -> None:
        options = OutboxOptions(correlation_id=event_id.hex, endpoint_ids=endpoint_ids, ordering_key=ordering_key)
        self._messages.append(
            OutboxMessage(
                event_id=event_id,
                org_id=org_id,
                event_type=str(event_type),
                payload=payload,
                created_at=self.now,
                options=options,
            )
        )


def _is_open_cause(alert: Alert) -> bool:
    return alert.is_open and alert.rule is Rule.DEAD_LETTER


def _message_id(scope: UUID, alert: Alert, news: News) -> UUID:
    """An id that depends only on the alert, what is announced about it, and the recipient, so every process creates the
    message with the same id."""
    at = alert.ended_at if news is News.RECOVERED else alert.told_at
    return _event_id(at or alert.seen_at, scope, f"{alert.alert_id}/{news}")


def _event_id(at: Instant, scope: UUID, name: str) -> UUID:
    """An id that is derived from the arguments and sorts by time like all event ids."""
    return uuid7(at, lambda size: blake2b(scope.bytes + name.encode(), digest_size=size).digest())
