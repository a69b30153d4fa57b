"""What one organization is to be told, gathered from what was seen, and written as one Telling."""

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
    Alert,
    AlertChange,
    Ending,
    Rule,
    Telling,
    subject_of,
)
from doorstep.model.channel import OPERATIONS_ORG, Channel, ChannelKind
from doorstep.model.ids import uuid7
from doorstep.model.incident import OPERATIONAL_KINDS, Incident, IncidentKind
from doorstep.model.outcome import Code
from doorstep.model.posting import Posting, PostingOptions
from doorstep.path.roster import Roster
from doorstep.policy.alert_words import operational_payload, payload_for, words_of
from doorstep.policy.alerting import News, Rules, Sight, Step, after, ended, reviewed

CAUSES_MAX = 10
"""So many causes of an endpoint's dead letters are told apart; what dies of others is counted together."""
MESSAGE = "doorstep.message"
"""The event type of what goes to channels."""
OPERATIONAL = frozenset({*OPERATIONAL_KINDS, ALERT_FIRED, ALERT_RECOVERED})
"""The types of operational events. What becomes of such an event causes none itself, or they would never end."""

_CONDITIONS = {
    IncidentKind.CIRCUIT_OPENED: (Rule.CIRCUIT_OPENED, None),
    IncidentKind.CIRCUIT_CLOSED: (Rule.CIRCUIT_OPENED, Ending.RECOVERED),
    IncidentKind.ENDPOINT_DISABLED: (Rule.ENDPOINT_DISABLED, None),
    IncidentKind.ENDPOINT_ENABLED: (Rule.ENDPOINT_DISABLED, Ending.RECOVERED),
    IncidentKind.ENDPOINT_PAUSED: (Rule.ENDPOINT_DISABLED, Ending.ENDPOINT_PAUSED),
}
"""What begins with an incident, or ends with it."""


class Book:
    """Alerts as they were read, and what becomes of them; nothing is written here."""

    def __init__(
        self,
        org_id: UUID,
        rules: Rules,
        channels: Sequence[Channel],
        alerts: Iterable[Alert],
        now: Instant,
        roster: Roster,
        console: str,
    ) -> None:
        self.org_id = org_id
        self.rules = rules
        self.now = now
        self._channels = channels
        self._roster = roster
        self._console = console
        self._newest: dict[str, Alert] = {}
        for alert in sorted(alerts, key=lambda one: (one.is_open, one.opened_at)):
            self._newest[alert.subject] = alert
        self._versions = {alert.alert_id: alert.version for alert in self._newest.values()}
        self._causes = Counter(one.endpoint_id for one in self._newest.values() if _is_open_letter(one))
        self._changed: dict[UUID, Alert] = {}
        self._postings: list[Posting] = []
        self._taken: list[int] = []

    # -- what was seen -------------------------------------------------------------------------------------

    def take(self, incident: Incident) -> None:
        """An incident becomes an operational event, and makes or ends alerts."""
        self._taken.append(incident.key)
        if incident.kind in OPERATIONAL_KINDS and incident.event_type not in OPERATIONAL:
            self._post_operational(incident)
        if incident.kind is IncidentKind.DELIVERY_DEAD:
            if incident.code != Code.SKIPPED:  # whoever skipped it knows
                self._see(self._death(incident))
        elif incident.kind is IncidentKind.ENDPOINT_DELETED:
            self._end_of_deleted()
        elif incident.kind in _CONDITIONS:
            self._turn(incident, *_CONDITIONS[incident.kind])

    def see_condition(self, rule: Rule, endpoint_id: UUID, reason: str) -> None:
        """What is the case with an endpoint now, whenever that began: to somebody who wants to know only now it is new."""
        name = self._roster.name(endpoint_id)
        self._see(Sight(rule=rule, on=True, endpoint_id=endpoint_id, endpoint_name=name, reason=reason))

    def measure(self, rule: Rule, endpoint_id: UUID | None, on: bool, value: float) -> None:
        """What a measure is now, and whether that is too much."""
        name = self._roster.name(endpoint_id)
        self._see(Sight(rule=rule, on=on, value=value, endpoint_id=endpoint_id, endpoint_name=name))

    def review(self) -> None:
        """What time alone, or another rule, does to alerts."""
        self._end_of_deleted()
        for alert in list(self._newest.values()):
            self._keep(reviewed(alert, self.rules, self.now))

    def is_on(self, rule: Rule, endpoint_id: UUID | None) -> bool:
        return self.on_since(rule, endpoint_id) is not None

    def on_since(self, rule: Rule, endpoint_id: UUID | None) -> Instant | None:
        """When the alert began that is open; None if there is none."""
        known = self._newest.get(subject_of(rule, endpoint_id))
        return known.opened_at if known is not None and known.is_open else None

    def endpoints_with(self, rule: Rule, at: Instant | None = None) -> set[UUID]:
        """Those that have an open alert of a rule that measures; only if they had it at an instant, where one is given."""
        found = (one for one in self._newest.values() if one.is_open and one.rule is rule)
        begun = (one.endpoint_id for one in found if at is None or one.opened_at <= at)
        return {endpoint_id for endpoint_id in begun if endpoint_id is not None}

    def departed_with(self, rule: Rule, since: Instant) -> set[UUID]:
        """Those whose alert of a rule ended because they were deleted, later than an instant."""
        ended = (one for one in self._newest.values() if one.rule is rule and (one.ended_at or 0) > since)
        found = (one.endpoint_id for one in ended if one.ended_because is Ending.ENDPOINT_DELETED)
        return {endpoint_id for endpoint_id in found if endpoint_id is not None}

    def is_deleted(self, endpoint_id: UUID | None) -> bool:
        return endpoint_id is not None and not self._roster.is_living(endpoint_id)

    def telling(self) -> Telling:
        ended_first = sorted(self._changed.values(), key=lambda one: one.is_open)
        changes = (AlertChange(one, self._versions.get(one.alert_id, 0)) for one in ended_first)
        return Telling(
            org_id=self.org_id,
            incident_keys=tuple(self._taken),
            changes=tuple(changes),
            postings=tuple(self._postings),
        )

    # -- what becomes of it --------------------------------------------------------------------------------

    def _see(self, sight: Sight) -> None:
        """Of an endpoint that was deleted nothing begins any more but its last deaths: what ends it has been seen."""
        if sight.on and sight.rule not in OCCURRENCES and self.is_deleted(sight.endpoint_id):
            return
        known = self._newest.get(sight.subject)
        if known is not None and known.is_open and known.rule in OCCURRENCES:
            self._keep(reviewed(known, self.rules, self.now))  # its time may be over: then this is another
        self._keep(after(self._newest.get(sight.subject), sight, self.rules, self.now, uuid7(self.now)))

    def _turn(self, incident: Incident, rule: Rule, ending: Ending | None) -> None:
        if ending is None:
            self._see(self._sight(incident, rule))
            return
        known = self._newest.get(subject_of(rule, incident.endpoint_id))
        if known is not None and known.is_open:
            self._keep(ended(known, ending, self.rules, self.now))

    def _keep(self, step: Step | None) -> None:
        if step is None:
            return
        alert, before = step.alert, self._newest.get(step.alert.subject)
        self._causes[alert.endpoint_id] += _is_open_letter(alert) - (before is not None and _is_open_letter(before))
        self._newest[alert.subject] = self._changed[alert.alert_id] = alert
        if step.news is not None:
            self._post_news(alert, step.news)

    def _end_of_deleted(self) -> None:
        """With an endpoint that was deleted nothing can be the matter any more."""
        for alert in list(self._newest.values()):
            if alert.is_open and alert.rule not in OCCURRENCES and self.is_deleted(alert.endpoint_id):
                self._keep(ended(alert, Ending.ENDPOINT_DELETED, self.rules, self.now))

    def _death(self, incident: Incident) -> Sight:
        sight = self._sight(incident, Rule.DEAD_LETTER, incident.cause)
        known = self._newest.get(sight.subject)
        is_known = known is not None and known.is_open
        told_apart = is_known or self._causes[incident.endpoint_id] < CAUSES_MAX
        return sight if told_apart else replace(sight, cause=None)

    def _sight(self, incident: Incident, rule: Rule, cause: int | None = None) -> Sight:
        return Sight(
            rule=rule,
            on=True,
            endpoint_id=incident.endpoint_id,
            endpoint_name=self._roster.name(incident.endpoint_id),
            cause=cause,
            code=incident.code,
            reason=incident.reason,
            delivery_id=incident.delivery_id,
            event_id=incident.event_id,
            event_type=incident.event_type,
        )

    # -- messages and operational events -------------------------------------------------------------------

    def _post_news(self, alert: Alert, news: News) -> None:
        """One message for each channel that wants it, in the order in which its news came."""
        words = words_of(alert, news, self._console)
        recovery = news is News.RECOVERED
        for channel in self._channels:
            if channel.wants(alert.rule, alert.endpoint_id, recovery=recovery):
                payload = payload_for(channel.means, words)
                key = _message_id(channel.channel_id, alert, news)
                self._post(key, OPERATIONS_ORG, MESSAGE, payload, (channel.channel_id,), str(alert.alert_id))
        if alert.event_type not in OPERATIONAL:
            payload = payload_for(ChannelKind.WEBHOOK, words)
            event_type = ALERT_RECOVERED if recovery else ALERT_FIRED
            key, order = _message_id(self.org_id, alert, news), str(alert.alert_id)
            self._post_to_subscribers(key, event_type, payload, alert.endpoint_id, order)

    def _post_operational(self, incident: Incident) -> None:
        """What is so with an endpoint comes in its order. Deaths do not: each is of another delivery, and one that cannot
        be delivered for now must not hold up thousands."""
        key = _event_id(incident.at, self.org_id, f"incident/{incident.key}")
        order = None if incident.kind is IncidentKind.DELIVERY_DEAD else str(incident.endpoint_id)
        self._post_to_subscribers(key, incident.kind, operational_payload(incident), incident.endpoint_id, order)

    def _post_to_subscribers(
        self, event_id: UUID, event_type: str, payload: bytes, about: UUID | None, order: str | None
    ) -> None:
        """If nobody asked for it nothing is made: no inbox is littered."""
        if wanted := self._roster.subscribers(event_type, about):
            self._post(event_id, self.org_id, event_type, payload, wanted, order)

    def _post(
        self,
        event_id: UUID,
        org_id: UUID,
        event_type: str,
        payload: bytes,
        endpoint_ids: tuple[UUID, ...],
        ordering_key: str | None = None,
    ) -> None:
        options = PostingOptions(correlation_id=event_id.hex, endpoint_ids=endpoint_ids, ordering_key=ordering_key)
        self._postings.append(
            Posting(
                event_id=event_id,
                org_id=org_id,
                event_type=str(event_type),
                payload=payload,
                created_at=self.now,
                options=options,
            )
        )


def _is_open_letter(alert: Alert) -> bool:
    return alert.is_open and alert.rule is Rule.DEAD_LETTER


def _message_id(where: UUID, alert: Alert, news: News) -> UUID:
    """The same for the same news, whoever words it."""
    at = alert.ended_at if news is News.RECOVERED else alert.told_at
    return _event_id(at or alert.seen_at, where, f"{alert.alert_id}/{news}")


def _event_id(at: Instant, where: UUID, what: str) -> UUID:
    """That of something that happened at `at`, in the order of all events; the same for the same thing."""
    return uuid7(at, lambda size: blake2b(where.bytes + what.encode(), digest_size=size).digest())
