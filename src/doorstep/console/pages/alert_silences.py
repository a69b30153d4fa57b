"""Silences: times in which alerts are listed and told to nobody."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.clock import Instant, seconds
from doorstep.console.alert_texts import RULES
from doorstep.console.choices import endpoints_of
from doorstep.console.confirming import reason_of
from doorstep.console.fields import Fields
from doorstep.console.filters import one_of
from doorstep.console.page import ACT, Pages
from doorstep.console.visit import Visit
from doorstep.errors import InvalidInput
from doorstep.model.alert import Rule, Silence

PAGES = Pages("/alerts/silences")
PLACE = "/console/alerts/silences"
SPANS = {"1h": 3_600, "4h": 14_400, "1d": 86_400, "7d": 604_800}
"""How long, in seconds; anything else is said by its end."""
_SPAN_NAMES = {"1h": "1 hour", "4h": "4 hours", "1d": "1 day", "7d": "7 days"}


@PAGES.get()
async def show(visit: Visit) -> Response:
    """What goes on first, then what is to come, then what has ended lately."""
    now, found = visit.now, await visit.doorstep.components.alerts.silences(visit.org_id)
    rows = sorted(((state_of(one, now), one) for one in found), key=lambda row: (_ORDER[row[0]], row[1].until_at))
    about = {one.endpoint_id for one in found if one.endpoint_id is not None}
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, about)
    people = await visit.doorstep.components.reader.key_names(visit.org_id, (one.actor for one in found))
    return visit.page("alert_silences.html", rows=rows, names=names, rules=RULES, people=people)


@PAGES.get("/new", ACT)
async def ask_new(visit: Visit) -> Response:
    return await _form(visit, visit.query)


@PAGES.post("/new")
async def create(visit: Visit) -> Response:
    form = visit.form
    try:
        from_at = form.moment("from_at")
        await visit.doorstep.components.alerts.silence(
            visit.org_id,
            visit.actor,
            until_at=_until(form, from_at or visit.now),
            from_at=from_at,
            endpoint_id=form.id("endpoint_id"),
            rule=form.choice("rule", Rule),
            reason=reason_of(form),
        )
    except InvalidInput as error:
        return await _form(visit, form, error)
    return visit.done("Nobody is told while it lasts. What is still on when it ends is told then.")


@PAGES.post("/{silence_id}/end")
async def end(visit: Visit) -> Response:
    await visit.doorstep.components.alerts.end_silence(visit.org_id, visit.id("silence_id"), visit.actor)
    return visit.done("Ended. What is on is told now.", PLACE)


def state_of(silence: Silence, now: Instant) -> str:
    if silence.until_at <= now:
        return "ended"
    return "silent" if silence.from_at <= now else "planned"


_ORDER = {"silent": 0, "planned": 1, "ended": 2}


def _until(form: Fields, begin: Instant) -> Instant:
    """The end that was named, else so long after the begin."""
    named = form.moment("until_at")
    if named is not None:
        return named
    return begin + seconds(one_of("span", form.text("span") or "1h", SPANS))


async def _form(visit: Visit, entered: Fields, error: InvalidInput | None = None) -> Response:
    return visit.filled(
        "alert_silence_new.html",
        entered,
        error,
        rules=[(rule, words.name) for rule, words in RULES.items()],
        spans=_SPAN_NAMES,
        endpoints=await endpoints_of(visit),
        place=visit.back if entered.flag("back") else PLACE,
    )
