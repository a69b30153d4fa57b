"""The wording of alerts, for people and for programs; text from others stays plain text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from doorstep.clock import to_iso
from doorstep.model.alert import ALERT_FIRED, ALERT_RECOVERED, Alert, ChannelKind, Ending, Incident, Rule
from doorstep.model.record import Record
from doorstep.policy.alerts import News

_TYPES = {News.FIRED: ALERT_FIRED, News.RECOVERED: ALERT_RECOVERED}


class AlertMessage(Record, frozen=True):
    """A message, before it is put into the shape of its channel."""

    title: str
    text: str
    link: str
    body: dict[str, Any]
    """For programs: `type`, `timestamp` and `data`, as Standard Webhooks recommends."""
    good: bool
    """It tells of an end, or is only a test."""


def words_of(alert: Alert, news: News, console: str) -> AlertMessage:
    """What is said of an alert; `console` is the address that the console is at."""
    good = news is News.RECOVERED
    title = _title_of_end(alert) if good else title_of(alert)
    link = link_to(alert, console)
    at = (alert.ended_at if good else alert.told_at) or alert.seen_at
    data = data_of(alert) | {"title": title, "link": link}
    body = {"type": _TYPES[news], "timestamp": to_iso(at), "data": data}
    return AlertMessage(title, "\n".join([*_lines(alert, news), link]), link, body, good)


def words_of_test(name: str, at: int, console: str) -> AlertMessage:
    """What a channel's test says."""
    title, text = "Test message", f"This is a test of the channel {one_line(name)}. Alerts will arrive like this."
    body = {"type": "alert.test", "timestamp": to_iso(at), "data": {"title": title, "text": text, "link": console}}
    return AlertMessage(title, f"{text}\n{console}", console, body, good=True)


def payload_for(means: ChannelKind, words: AlertMessage) -> bytes:
    """A message in the shape that its channel wants."""
    subject = f"[Doorstep] {words.title}"
    match means:
        case ChannelKind.WEBHOOK:
            shape: dict[str, Any] = words.body
        case ChannelKind.SLACK:
            shape = {"text": for_slack(f"*{subject}*\n{words.text}")}
        case ChannelKind.EMAIL:
            shape = {"subject": subject, "text": words.text}
        case ChannelKind.APPRISE:
            kind = "success" if words.good else "failure"
            shape = {"title": without_markup(subject), "body": without_markup(words.text), "type": kind}
    return msgspec.json.encode(shape)


def operational_payload(incident: Incident) -> bytes:
    """An incident as an ordinary event of its organization."""
    data = {
        "endpoint_id": None if incident.endpoint_id is None else str(incident.endpoint_id),
        "error_code": incident.code,
        "error_reason": incident.reason,
        "delivery_id": None if incident.delivery_id is None else str(incident.delivery_id),
        "event_id": None if incident.event_id is None else str(incident.event_id),
        "event_type": incident.event_type,
        "attempts": incident.attempts,
    }
    return msgspec.json.encode({"type": incident.kind.value, "timestamp": to_iso(incident.at), "data": data})


def data_of(alert: Alert) -> dict[str, Any]:
    """What programs are told of an alert."""
    return {
        "alert_id": str(alert.alert_id),
        "rule": alert.rule.value,
        "state": "open" if alert.is_open else "recovered",
        "endpoint_id": None if alert.endpoint_id is None else str(alert.endpoint_id),
        "endpoint_name": alert.endpoint_name,
        "error_code": alert.code,
        "error_reason": alert.reason,
        "value": alert.value,
        "threshold": alert.threshold,
        "count": alert.count,
        "delivery_id": None if alert.delivery_id is None else str(alert.delivery_id),
        "event_id": None if alert.event_id is None else str(alert.event_id),
        "event_type": alert.event_type,
        "opened_at": to_iso(alert.opened_at),
        "ended_at": None if alert.ended_at is None else to_iso(alert.ended_at),
        "ended_because": alert.ended_because,
    }


def link_to(alert: Alert, console: str) -> str:
    """The page of the console where one can do something about it."""
    if alert.rule is Rule.DEAD_LETTER and alert.event_id is not None:
        return f"{console}/console/events/{alert.event_id}"
    if alert.rule is Rule.DEAD_LETTERS:
        wanted = "" if alert.endpoint_id is None else f"?endpoint_id={alert.endpoint_id}"
        return f"{console}/console/dead-letters{wanted}"
    if alert.endpoint_id is not None:
        return f"{console}/console/endpoints/{alert.endpoint_id}"
    return f"{console}/console/retry-queue"


def title_of(alert: Alert) -> str:
    """What it is called, in a list and in a message."""
    return _about(alert, _FIRED[alert.rule](alert.value or 0.0))


def _title_of_end(alert: Alert) -> str:
    """Only what works again has recovered."""
    if alert.ended_because in _ENDED:
        return f"Ended: {title_of(alert)}"
    return f"Recovered: {_about(alert, _RECOVERED[alert.rule])}"


def _about(alert: Alert, words: str) -> str:
    return f"{one_line(alert.endpoint_name)}: {words}" if alert.endpoint_name else words


def _measured(rule: Rule, value: float) -> str:
    return percent(value) if rule is Rule.FAILURE_RATE else f"{value:.1f}".removesuffix(".0")


def _threshold(rule: Rule, value: float) -> str:
    return percent_as_set(value) if rule is Rule.FAILURE_RATE else f"{value:.15g}"


_FIRED: dict[Rule, Callable[[float], str]] = {
    Rule.DEAD_LETTER: lambda value: "a delivery failed for good",
    Rule.FAILURE_RATE: lambda value: f"{percent(value)} of deliveries fail",
    Rule.DEAD_LETTERS: lambda value: f"{value:.0f} dead letters",
    Rule.CIRCUIT_OPENED: lambda value: "circuit opened",
    Rule.ENDPOINT_DISABLED: lambda value: "endpoint disabled",
    Rule.OLDEST_DUE: lambda value: f"a delivery has been due for {value:.0f} s",
}
_ENDED = {
    Ending.ENDPOINT_DELETED: "The endpoint was deleted.",
    Ending.ENDPOINT_PAUSED: "The endpoint was paused.",
    Ending.RULE_CHANGED: "The rule was turned off or reset.",
}
_RECOVERED = {
    Rule.DEAD_LETTER: "no more of these dead letters",
    Rule.FAILURE_RATE: "deliveries arrive again",
    Rule.DEAD_LETTERS: "the dead letters have been seen to",
    Rule.CIRCUIT_OPENED: "circuit closed",
    Rule.ENDPOINT_DISABLED: "endpoint enabled",
    Rule.OLDEST_DUE: "deliveries are on time",
}


def _lines(alert: Alert, news: News) -> list[str]:
    """What happened, in sentences; of an end, only why it is one and how long it lasted."""
    if news is News.RECOVERED:
        lasted = ((alert.ended_at or alert.seen_at) - alert.opened_at) / 1_000_000
        why = [_ENDED[alert.ended_because]] if alert.ended_because in _ENDED else []
        return [*why, f"It had begun at {to_iso(alert.opened_at)} and lasted {lasted:.0f} s."]
    error = one_line(" ".join(part for part in (alert.code, alert.reason) if part))
    lines = [f"Error: {error}"] if error else []
    if alert.event_type:
        lines.append(f"Event: {alert.event_type} {alert.event_id}")
    if alert.threshold is not None and alert.value is not None:
        measured, threshold = _measured(alert.rule, alert.value), _threshold(alert.rule, alert.threshold)
        lines.append(f"Measured {measured}, threshold {threshold}.")
    return lines


_GAP = "\u200b"
_MARKS = str.maketrans({"@": f"@{_GAP}", "<": f"<{_GAP}", "&": f"&{_GAP}", "`": "'"})
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def one_line(text: str) -> str:
    """Without line ends and other control characters: who is named over two lines must not write lines of ours."""
    return "".join(one if one.isprintable() else " " for one in text)


def percent(value: float) -> str:
    """What was measured: `5.7%`; it says 100 only of everything, and 0 only of nothing."""
    if 99.95 <= value < 100:
        return "99.9%"
    if 0 < value < 0.05:
        return "0.1%"
    return f"{value:.1f}%".replace(".0%", "%")


def percent_as_set(value: float) -> str:
    """What somebody has set: `0.02%`, with all of its digits."""
    return f"{value:.15g}%"


def without_markup(text: str) -> str:
    """For chats that read Markdown: nobody is called, no link hides where it leads, no code block swallows the rest."""
    return text.translate(_MARKS).replace("](", f"]{_GAP}(").replace("][", f"]{_GAP}[")


def for_slack(text: str) -> str:
    """The same for what Slack, and whoever takes its messages, reads; even where the entities are decoded first."""
    return without_markup(text).translate(_ENTITIES)
