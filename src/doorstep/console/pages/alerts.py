"""The page of open and ended alerts, with the channels that are notified and the users who acknowledged the alerts.
Also the texts that describe alerts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from doorstep.clock import seconds
from doorstep.console.confirm import endpoints_of
from doorstep.console.formatting import amount, lasting
from doorstep.console.request import PageRequest, Pages
from doorstep.model.alert import MEASURED, Alert, AlertConfig, AlertFilter, AlertRule, Channel, Ending, Rule, Silence
from doorstep.model.listing import Page
from doorstep.policy.alert_messages import link_to, percent, percent_as_set, title_of

PAGES = Pages("/alerts")
_LIMIT = 50
_READS_MAX = 5
"""The maximum number of reads to fill one page. Each read examines only a bounded part of the list."""
_STATES = {"open": "open", "ended": "ended"}


class Row(NamedTuple):
    """One alert in a list."""

    alert: Alert
    title: str
    value: str
    threshold: str
    silenced: bool
    """Whether a silence currently suppresses its notifications."""
    channels: tuple[str, ...]
    """The names of the channels that are notified of it."""


@PAGES.get()
async def show(request: PageRequest) -> Response:
    """Shows the open alerts, with the ended alerts below them. If both lists are shown, only the ended alerts can be
    paged through."""
    query, cursor = request.query, request.query.text("cursor")
    state = query.option("state", _STATES)
    kinds = (state,) if state else tuple(_STATES)
    shown = kinds[-1:] if cursor else kinds
    filter = AlertFilter(rule=query.choice("rule", Rule), endpoint_id=query.id("endpoint_id"))
    pages = {kind: await _page(request, filter, kind, cursor if kind == shown[-1] else None) for kind in shown}
    config = await request.components.alerts.config(request.org_id)
    return request.page(
        "alerts.html",
        lists={kind: _rows(request, page.items, config) for kind, page in pages.items()},
        next=pages[shown[-1]].next,
        more_open=len(shown) > 1 and pages["open"].next is not None,
        rules=RULES,
        endings=ENDINGS,
        has_channel=any(isinstance(one, Channel) for one in config),
        endpoints=await endpoints_of(request),
        people=await _people(request, [one for page in pages.values() for one in page.items]),
    )


async def _page(request: PageRequest, filter: AlertFilter, kind: str, cursor: str | None) -> Page[Alert]:
    """A full page, if there are enough alerts. A page from the store may be short even though more alerts follow, so
    this function may read several."""
    filter, found = replace(filter, is_open=kind == "open"), list[Alert]()
    for _ in range(_READS_MAX):
        page = await request.components.alerts.alerts(request.org_id, filter, cursor, _LIMIT - len(found))
        found += page.items
        cursor = page.next
        if cursor is None or len(found) >= _LIMIT:
            break
    return Page(tuple(found), cursor)


@PAGES.get("/{alert_id}")
async def show_one(request: PageRequest) -> Response:
    alert = await request.components.alerts.alert(request.org_id, request.id("alert_id"))
    (row,) = _rows(request, [alert], await request.components.alerts.config(request.org_id))
    place, label = related_page(alert)
    return request.page(
        "alert.html",
        row=row,
        rule=RULES[alert.rule],
        place=place,
        label=label,
        endings=ENDINGS,
        people=await _people(request, [alert]),
    )


@PAGES.post("/{alert_id}/acknowledge")
async def acknowledge(request: PageRequest) -> Response:
    alert = await request.components.alerts.acknowledge(request.org_id, request.id("alert_id"), request.actor)
    if alert.acknowledged_by != request.actor:
        who = alert.acknowledged_by or ""
        return request.refused(f"{(await _people(request, [alert])).get(who, who)} acknowledged it before you.")
    return request.done("Acknowledged: others see that you are working on it.")


async def _people(request: PageRequest, alerts: Sequence[Alert]) -> dict[str, str]:
    """The names of the API keys that acknowledged these alerts."""
    return await request.reader.key_names(request.org_id, (one.acknowledged_by for one in alerts))


def _rows(request: PageRequest, alerts: Sequence[Alert], config: Sequence[AlertConfig]) -> list[Row]:
    silences = [one for one in config if isinstance(one, Silence)]
    channels = [one for one in config if isinstance(one, Channel)]
    return [
        Row(
            alert=one,
            title=title_of(one),
            value=measured(one.rule, one.value),
            threshold=threshold(one.rule, one.threshold),
            silenced=any(silence.covers(one.rule, one.endpoint_id, request.now) for silence in silences),
            channels=tuple(to.name for to in channels if to.accepts(one.rule, one.endpoint_id, recovery=False)),
        )
        for one in alerts
    ]


# -- texts: pure -------------------------------------------------------------------------------------------


class RuleTexts(NamedTuple):
    name: str
    fires: str
    """The end of a sentence that says when the rule fires; `{}` stands for the threshold."""
    threshold: str = ""
    """The label of the input for the rule's threshold."""


RULES: dict[Rule, RuleTexts] = {
    Rule.DEAD_LETTER: RuleTexts("Dead letter", "a delivery fails permanently; one alert per endpoint and cause"),
    Rule.FAILURE_RATE: RuleTexts(
        "Failure rate", "more than {} of the finished deliveries failed permanently", "More than this percentage"
    ),
    Rule.DEAD_LETTERS: RuleTexts("Dead letters", "there are more than {} dead letters", "More than"),
    Rule.CIRCUIT_OPENED: RuleTexts(
        "Circuit opened", "an endpoint failed too often in a row, and its deliveries are held"
    ),
    Rule.ENDPOINT_DISABLED: RuleTexts("Endpoint disabled", "an endpoint is disabled: it is gone or failed for days"),
    Rule.OLDEST_DUE: RuleTexts("Oldest due", "a delivery that is not held is overdue by more than {}", "Overdue by"),
}
ENDINGS: dict[Ending, str] = {
    Ending.RECOVERED: "it recovered",
    Ending.ELAPSED: "it did not recur within its cooldown",
    Ending.ENDPOINT_DELETED: "the endpoint was deleted",
    Ending.ENDPOINT_PAUSED: "the endpoint was paused",
    Ending.RULE_CHANGED: "its rule was turned off or reset",
}
_RELATED_PAGES = {
    "events": "Open the event",
    "dead-letters": "Open the dead letters",
    "endpoints": "Open the endpoint",
    "retry-queue": "Open the retry queue",
}


def measured(rule: Rule, value: float | None, in_percent: Callable[[float], str] = percent) -> str:
    """The measured value in its unit; a dash for rules that measure nothing."""
    if value is None or rule not in MEASURED:
        return "–"
    if rule is Rule.FAILURE_RATE:
        return in_percent(value)
    return lasting(seconds(value)) if rule is Rule.OLDEST_DUE else amount(value)


def threshold(rule: Rule, value: float | None) -> str:
    """The threshold in its unit; a dash for rules that measure nothing."""
    return measured(rule, value, percent_as_set)


def fires(rule: AlertRule) -> str:
    """Says when a rule fires: `more than 5% of the finished deliveries … within 15 min, and at least 20 finished`."""
    text = RULES[rule.rule].fires.format(threshold(rule.rule, rule.threshold))
    if rule.rule is not Rule.FAILURE_RATE:
        return text
    return f"{text} within {lasting(seconds(rule.window_seconds))}, and at least {amount(rule.minimum)} finished"


def related_page(alert: Alert) -> tuple[str, str]:
    """The path of the page where an operator can act on the alert, and the label of the link to it."""
    path = link_to(alert, "")
    return path, _RELATED_PAGES[path.split("/")[2].partition("?")[0]]
