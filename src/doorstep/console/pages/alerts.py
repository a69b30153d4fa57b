"""Alerts: what is the matter, what was, who was told, and who sees to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from doorstep.console.alert_texts import ENDINGS, RULES, measured, repair, threshold
from doorstep.console.fields import one_of
from doorstep.console.page import Pages
from doorstep.console.request import PageRequest
from doorstep.console.selection import endpoints_of
from doorstep.model.alert import Alert, AlertConfig, AlertFilter, Channel, Rule, Silence
from doorstep.model.listing import Page
from doorstep.policy.alert_messages import title_of

PAGES = Pages("/alerts")
_LIMIT = 50
_STRETCHES_MAX = 5
"""How far one page looks for what matches; the store examines a bounded part of the list at a time."""
_STATES = {"open": "open", "ended": "ended"}


class Row(NamedTuple):
    """One alert in a list."""

    alert: Alert
    title: str
    value: str
    threshold: str
    silenced: bool
    """Nobody is told of it now, because somebody said so."""
    channels: tuple[str, ...]
    """Those that take it, by name."""


@PAGES.get()
async def show(visit: PageRequest) -> Response:
    """What is open first, what has ended below it; only the last list of a page has further pages."""
    query, cursor = visit.query, visit.query.text("cursor")
    state = query.text("state")
    kinds = tuple(_STATES) if state is None else (one_of("state", state, _STATES),)
    shown = kinds[-1:] if cursor else kinds
    wanted = AlertFilter(rule=query.choice("rule", Rule), endpoint_id=query.id("endpoint_id"))
    pages = {kind: await _found(visit, wanted, kind, cursor if kind == shown[-1] else None) for kind in shown}
    arranged = await visit.doorstep.components.store.arrangements(visit.org_id)
    return visit.page(
        "alerts.html",
        lists={kind: _rows(visit, page.items, arranged) for kind, page in pages.items()},
        next=pages[shown[-1]].next,
        more_open=len(shown) > 1 and pages["open"].next is not None,
        rules=RULES,
        endings=ENDINGS,
        has_channel=any(isinstance(one, Channel) for one in arranged),
        endpoints=await endpoints_of(visit),
        people=await _people(visit, [one for page in pages.values() for one in page.items]),
    )


async def _found(visit: PageRequest, wanted: AlertFilter, kind: str, cursor: str | None) -> Page[Alert]:
    """A page of them; what the store gives may be short although there is more."""
    chosen, found = replace(wanted, is_open=kind == "open"), list[Alert]()
    for _ in range(_STRETCHES_MAX):
        page = await visit.doorstep.components.alerts.alerts(visit.org_id, chosen, cursor, _LIMIT - len(found))
        found += page.items
        cursor = page.next
        if cursor is None or len(found) >= _LIMIT:
            break
    return Page(tuple(found), cursor)


@PAGES.get("/{alert_id}")
async def show_one(visit: PageRequest) -> Response:
    alert = await visit.doorstep.components.alerts.alert(visit.org_id, visit.id("alert_id"))
    (row,) = _rows(visit, [alert], await visit.doorstep.components.store.arrangements(visit.org_id))
    place, label = repair(alert)
    return visit.page(
        "alert.html",
        row=row,
        rule=RULES[alert.rule],
        place=place,
        label=label,
        endings=ENDINGS,
        people=await _people(visit, [alert]),
    )


@PAGES.post("/{alert_id}/acknowledge")
async def acknowledge(visit: PageRequest) -> Response:
    alert = await visit.doorstep.components.alerts.acknowledge(visit.org_id, visit.id("alert_id"), visit.actor)
    if alert.acknowledged_by != visit.actor:
        who = alert.acknowledged_by or ""
        return visit.refused(f"{(await _people(visit, [alert])).get(who, who)} acknowledged it before you.")
    return visit.done("Acknowledged: others see that you see to it.")


async def _people(visit: PageRequest, alerts: Sequence[Alert]) -> dict[str, str]:
    """Who sees to them, by name."""
    return await visit.doorstep.components.reader.key_names(visit.org_id, (one.acknowledged_by for one in alerts))


def _rows(visit: PageRequest, alerts: Sequence[Alert], arranged: Sequence[AlertConfig]) -> list[Row]:
    silences = [one for one in arranged if isinstance(one, Silence)]
    channels = [one for one in arranged if isinstance(one, Channel)]
    return [
        Row(
            alert=one,
            title=title_of(one),
            value=measured(one.rule, one.value),
            threshold=threshold(one.rule, one.threshold),
            silenced=any(silence.covers(one.rule, one.endpoint_id, visit.now) for silence in silences),
            channels=tuple(to.name for to in channels if to.wants(one.rule, one.endpoint_id, recovery=False)),
        )
        for one in alerts
    ]
