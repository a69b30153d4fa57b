"""The texts of alerts, for people and for programs. Names and error messages are never interpreted as markup."""

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
    """A message, before it is formatted for its channel."""

    title: str
    text: str
    link: str
    body: dict[str, Any]
    """For programs: `type`, `timestamp` and `data`, as Standard Webhooks recommends."""
    good: bool
    """Whether the message is good news: it announces the end of an alert, or is a test."""


def message_about(alert: Alert, news: News, console: str) -> AlertMessage:
    """The message about an alert; `console` is the URL of the console."""
    good = news is News.RECOVERED
    title = _title_of_end(alert) if good else title_of(alert)
    link = link_to(alert, console)
    at = (alert.ended_at if good else alert.told_at) or alert.seen_at
    data = data_of(alert) | {"title": title, "link": link}
    body = {"type": _TYPES[news], "timestamp": to_iso(at), "data": data}
    return AlertMessage(title, "\n".join([*_lines(alert, news), link]), link, body, good)


def channel_test_message(name: str, at: int, console: str) -> AlertMessage:
    """The message of a channel test."""
    title, text = "Test message", f"This is a test of the channel {one_line(name)}. Alerts will arrive like this."
    body = {"type": "alert.test", "timestamp": to_iso(at), "data": {"title": title, "text": text, "link": console}}
    return AlertMessage(title, f"{text}\n{console}", console, body, good=True)


def payload_for(means: ChannelKind, message: AlertMessage) -> bytes:
    """A message in the format of its channel."""
    subject = f"[Doorstep] {message.title}"
    match means:
        case ChannelKind.WEBHOOK:
            shape: dict[str, Any] = message.body
        case ChannelKind.SLACK:
            shape = {"text": for_slack(f"*{subject}*\n{message.text}")}
        case ChannelKind.EMAIL:
            shape = {"subject": subject, "text": message.text}
        case ChannelKind.APPRISE:
            kind = "success" if message.good else "failure"
            shape = {"title": without_markup(subject), "body": without_markup(message.text), "type": kind}
    return msgspec.json.encode(shape)


def operational_payload(incident: Incident) -> bytes:
    """The payload of the ordinary event that reports an incident to its organization."""
    data = {
        "endpoint_id": incident.endpoint_id,
        "error_code": incident.code,
        "error_reason": incident.reason,
        "delivery_id": incident.delivery_id,
        "event_id": incident.event_id,
        "event_type": incident.event_type,
        "attempts": incident.attempts,
    }
    return msgspec.json.encode({"type": incident.kind, "timestamp": to_iso(incident.at), "data": data})


def data_of(alert: Alert) -> dict[str, Any]:
    """An alert as data for programs."""
    return {
        "alert_id": alert.alert_id,
        "rule": alert.rule,
        "state": "open" if alert.is_open else "recovered",
        "endpoint_id": alert.endpoint_id,
        "endpoint_name": alert.endpoint_name,
        "error_code": alert.code,
        "error_reason": alert.reason,
        "value": alert.value,
        "threshold": alert.threshold,
        "count": alert.count,
        "delivery_id": alert.delivery_id,
        "event_id": alert.event_id,
        "event_type": alert.event_type,
        "opened_at": to_iso(alert.opened_at),
        "ended_at": None if alert.ended_at is None else to_iso(alert.ended_at),
        "ended_because": alert.ended_because,
    }


def link_to(alert: Alert, console: str) -> str:
    """The console page for acting on the alert."""
    if alert.rule is Rule.DEAD_LETTER and alert.event_id is not None:
        return f"{console}/console/events/{alert.event_id}"
    if alert.rule is Rule.DEAD_LETTERS:
        wanted = "" if alert.endpoint_id is None else f"?endpoint_id={alert.endpoint_id}"
        return f"{console}/console/dead-letters{wanted}"
    if alert.endpoint_id is not None:
        return f"{console}/console/endpoints/{alert.endpoint_id}"
    return f"{console}/console/retry-queue"


def title_of(alert: Alert) -> str:
    """The title of the alert in lists and messages."""
    return _about(alert, _FIRED[alert.rule](alert.value or 0.0))


def _title_of_end(alert: Alert) -> str:
    """The title of a message about the end of an alert: "Recovered" if the problem is over, "Ended" if the alert ended
    for another reason."""
    if alert.ended_because in _ENDED:
        return f"Ended: {title_of(alert)}"
    return f"Recovered: {_about(alert, _RECOVERED[alert.rule])}"


def _about(alert: Alert, words: str) -> str:
    return f"{one_line(alert.endpoint_name)}: {words}" if alert.endpoint_name else words


_FIRED: dict[Rule, Callable[[float], str]] = {
    Rule.DEAD_LETTER: lambda value: "a delivery failed permanently",
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
    Rule.DEAD_LETTER: "no further dead letters of this cause",
    Rule.FAILURE_RATE: "deliveries arrive again",
    Rule.DEAD_LETTERS: "the dead letters have been handled",
    Rule.CIRCUIT_OPENED: "circuit closed",
    Rule.ENDPOINT_DISABLED: "endpoint enabled",
    Rule.OLDEST_DUE: "deliveries are on time",
}


def _lines(alert: Alert, news: News) -> list[str]:
    """The details in sentences. For the end of an alert, they only say why it ended and how long it lasted."""
    if news is News.RECOVERED:
        lasted = ((alert.ended_at or alert.seen_at) - alert.opened_at) / 1_000_000
        why = [_ENDED[alert.ended_because]] if alert.ended_because in _ENDED else []
        return [*why, f"It started at {to_iso(alert.opened_at)} and lasted {lasted:.0f} s."]
    error = one_line(" ".join(part for part in (alert.code, alert.reason) if part))
    lines = [f"Error: {error}"] if error else []
    if alert.event_type:
        lines.append(f"Event: {alert.event_type} {alert.event_id}")
    if alert.threshold is not None and alert.value is not None:
        if alert.rule is Rule.FAILURE_RATE:
            measured, threshold = percent(alert.value), percent_as_set(alert.threshold)
        else:
            measured, threshold = f"{alert.value:.1f}".removesuffix(".0"), f"{alert.threshold:.15g}"
        lines.append(f"Measured {measured}, threshold {threshold}.")
    return lines


_GAP = "\u200b"
_MARKS = str.maketrans({"@": f"@{_GAP}", "<": f"<{_GAP}", "&": f"&{_GAP}", "`": "'"})
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def one_line(text: str) -> str:
    """The text without line breaks and other control characters, so that a name cannot add lines to the message."""
    return "".join(one if one.isprintable() else " " for one in text)


def percent(value: float) -> str:
    """A measured share, such as `5.7%`. Only values of exactly 0 and 100 are shown as `0%` and `100%`."""
    if 99.95 <= value < 100:
        return "99.9%"
    if 0 < value < 0.05:
        return "0.1%"
    return f"{value:.1f}%".replace(".0%", "%")


def percent_as_set(value: float) -> str:
    """A configured share with all its digits, such as `0.02%`."""
    return f"{value:.15g}%"


def without_markup(text: str) -> str:
    """The text for chats that render Markdown. It cannot contain mentions, links with misleading text, or code
    blocks."""
    return text.translate(_MARKS).replace("](", f"]{_GAP}(").replace("][", f"]{_GAP}[")


def for_slack(text: str) -> str:
    """The text for Slack and compatible chats. It contains no markup, even after the chat has decoded HTML entities."""
    return without_markup(text).translate(_ENTITIES)
