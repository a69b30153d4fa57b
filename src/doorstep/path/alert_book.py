"""What one organization is to be told, gathered from what was seen, and written as one Telling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.alert import ALERT_FIRED, ALERT_RECOVERED, Alert, AlertChange, AlertRule, Rule, Silence, Telling
from doorstep.model.channel import OPERATIONS_ORG, Arrangement, Channel, ChannelKind
from doorstep.model.ids import uuid7
from doorstep.model.incident import Incident, IncidentKind
from doorstep.model.outcome import Code
from doorstep.model.posting import Posting, PostingOptions
from doorstep.policy.alert_words import operational_payload, payload_for, words_of
from doorstep.policy.alerting import OCCURRENCES, News, Rules, Sight, Step, after, ended, reviewed

CAUSES_MAX = 10
"""So many causes of an endpoint's dead letters are told apart; what dies of others is counted together."""
MESSAGE = "doorstep.message"
"""The event type of what goes to channels."""
OPERATIONAL = frozenset({*IncidentKind, ALERT_FIRED, ALERT_RECOVERED})
"""The types of operational events. What becomes of such an event causes none itself, or they would never end."""

_CONDITIONS = {
    IncidentKind.CIRCUIT_OPENED: (Rule.CIRCUIT_OPENED, True),
    IncidentKind.CIRCUIT_CLOSED: (Rule.CIRCUIT_OPENED, False),
    IncidentKind.ENDPOINT_DISABLED: (Rule.ENDPOINT_DISABLED, True),
    IncidentKind.ENDPOINT_ENABLED: (Rule.ENDPOINT_DISABLED, False),
}

Subscribers = Callable[[str, UUID | None], tuple[UUID, ...]]
"""Which endpoints asked for operational events of a type, but for the one that it is about."""
Names = Callable[[UUID], str]


class Book:
    """Alerts as they were read, and what becomes of them; nothing is written here."""

    def __init__(
        self,
        org_id: UUID,
        arranged: Iterable[Arrangement],
        alerts: Iterable[Alert],
        now: Instant,
        *,
        subscribers: Subscribers,
        names: Names,
        new_id: Callable[[], UUID],
        console: str,
    ) -> None:
        arranged = list(arranged)
        self.org_id = org_id
        self.rules = Rules(
            org_id,
            (one for one in arranged if isinstance(one, AlertRule)),
            (one for one in arranged if isinstance(one, Silence)),
        )
        self._channels = [one for one in arranged if isinstance(one, Channel)]
        self._now = now
        self._subscribers = subscribers
        self._names = names
        self._new_id = new_id
        self._console = console
        self._newest: dict[str, Alert] = {}
        for alert in sorted(alerts, key=lambda one: (one.is_open, one.opened_at)):
            self._newest[alert.subject] = alert
        self._versions = {alert.alert_id: alert.version for alert in self._newest.values()}
        self._changed: dict[UUID, Alert] = {}
        self._postings: list[Posting] = []
        self._taken: list[int] = []

    # -- what was seen -------------------------------------------------------------------------------------

    def take(self, incident: Incident) -> None:
        """An incident becomes an operational event, and makes or ends alerts."""
        self._taken.append(incident.key)
        if incident.event_type not in OPERATIONAL:
            self._post_operational(incident)
        if incident.kind is IncidentKind.DELIVERY_DEAD:
            if incident.code != Code.SKIPPED:  # whoever skipped it knows
                self.see(self._death(incident))
        elif incident.kind is IncidentKind.ENDPOINT_DELETED:
            self._end_of(incident.endpoint_id)
        else:
            rule, on = _CONDITIONS[incident.kind]
            self.see(self._sight(incident, rule, on))

    def see(self, sight: Sight) -> None:
        known = self._newest.get(sight.subject)
        if known is not None and known.is_open and known.rule in OCCURRENCES:
            self._keep(reviewed(known, self.rules, self._now))  # its time may be over: then this is another
        self._keep(after(self._newest.get(sight.subject), sight, self.rules, self._now, self._new_id()))

    def review(self) -> None:
        """What time alone does to open alerts."""
        for alert in list(self._newest.values()):
            if alert.is_open:
                self._keep(reviewed(alert, self.rules, self._now))

    def open_of(self, rule: Rule) -> dict[UUID | None, Alert]:
        """The open alerts of a rule that measures, by their endpoint."""
        return {one.endpoint_id: one for one in self._newest.values() if one.is_open and one.rule is rule}

    def is_on(self, rule: Rule, endpoint_id: UUID | None) -> bool:
        return endpoint_id in self.open_of(rule)

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

    def _keep(self, step: Step | None) -> None:
        if step is None:
            return
        alert = step.alert
        self._newest[alert.subject] = self._changed[alert.alert_id] = alert
        if step.news is not None:
            self._post_news(alert, step.news)

    def _end_of(self, endpoint_id: UUID) -> None:
        """An endpoint was deleted: nothing can be the matter with it any more."""
        for alert in list(self._newest.values()):
            if alert.endpoint_id == endpoint_id and alert.is_open and alert.rule not in OCCURRENCES:
                self._keep(ended(alert, self.rules, self._now))

    def _death(self, incident: Incident) -> Sight:
        sight = self._sight(incident, Rule.DEAD_LETTER, True, incident.cause)
        return sight if self._is_told_apart(sight) else self._sight(incident, Rule.DEAD_LETTER, True)

    def _is_told_apart(self, sight: Sight) -> bool:
        known = self._newest.get(sight.subject)
        of_endpoint = (one for one in self._newest.values() if one.endpoint_id == sight.endpoint_id)
        causes = sum(one.is_open and one.rule is Rule.DEAD_LETTER for one in of_endpoint)
        return (known is not None and known.is_open) or causes < CAUSES_MAX

    def _sight(self, incident: Incident, rule: Rule, on: bool, cause: int | None = None) -> Sight:
        return Sight(
            rule=rule,
            on=on,
            endpoint_id=incident.endpoint_id,
            endpoint_name=self._names(incident.endpoint_id),
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
            self._post_to_subscribers(_message_id(self.org_id, alert, news), event_type, payload, alert.endpoint_id)

    def _post_operational(self, incident: Incident) -> None:
        key = _event_id(incident.at, self.org_id, f"incident/{incident.key}")
        self._post_to_subscribers(key, incident.kind, operational_payload(incident), incident.endpoint_id)

    def _post_to_subscribers(self, event_id: UUID, event_type: str, payload: bytes, about: UUID | None) -> None:
        """If nobody asked for it nothing is made: no inbox is littered."""
        if wanted := self._subscribers(event_type, about):
            self._post(event_id, self.org_id, event_type, payload, wanted)

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
                created_at=self._now,
                options=options,
            )
        )


def _message_id(where: UUID, alert: Alert, news: News) -> UUID:
    """The same for the same news, whoever words it."""
    at = alert.ended_at if news is News.RECOVERED else alert.told_at
    return _event_id(at or alert.seen_at, where, f"{alert.alert_id}/{news}")


def _event_id(at: Instant, where: UUID, what: str) -> UUID:
    """That of something that happened at `at`, in the order of all events; the same for the same thing."""
    return uuid7(at, lambda size: blake2b(where.bytes + what.encode(), digest_size=size).digest())
