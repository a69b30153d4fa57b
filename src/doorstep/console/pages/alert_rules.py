"""The rules for alerts: when each fires, for all endpoints or for one, whether it does at all, and back to the built-in."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.responses import Response

from doorstep.console.alert_texts import RULES, fires
from doorstep.console.choices import endpoints_of
from doorstep.console.fields import Fields
from doorstep.console.page import ACT, Pages
from doorstep.console.retry_words import span_from_text, span_text
from doorstep.console.visit import Visit
from doorstep.errors import InvalidInput
from doorstep.model.alert import MEASURED, AlertRule, Rule

PAGES = Pages("/alerts/rules")
PLACE = "/console/alerts/rules"
_LARGEST = 10**15
"""Where the form reads a number, the engine judges it."""
_SPANS = ("window_seconds", "cooldown_seconds")


@PAGES.get()
async def show(visit: Visit) -> Response:
    rules = await visit.doorstep.components.alerts.rules(visit.org_id)
    about = {one.endpoint_id for one in rules if one.endpoint_id is not None}
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, about)
    return visit.page("alert_rules.html", rows=[(one, fires(one)) for one in rules], names=names, rules=RULES)


@PAGES.get("/edit", ACT)
async def ask_edit(visit: Visit) -> Response:
    """The rule as it is, of all endpoints or of one; without an endpoint that has its own, as it would begin."""
    rule, endpoint_id = _named(visit.query)
    known = await _known(visit, rule, endpoint_id)
    return await _form(visit, known, endpoint_id, Fields(_texts(known).items()))


@PAGES.post("/edit")
async def edit(visit: Visit) -> Response:
    rule, endpoint_id = _named(visit.form)
    known = await _known(visit, rule, endpoint_id)
    try:
        changes = _changes(visit.form, known)
        if not changes and (endpoint_id is None or known.endpoint_id is not None):
            return visit.done("Nothing was changed.", PLACE)
        changes = changes or {"enabled": known.enabled}  # an endpoint gets its own, equal to the general one
        await visit.doorstep.components.alerts.set_rule(visit.org_id, rule, endpoint_id, changes, visit.actor)
    except InvalidInput as error:
        return await _form(visit, known, endpoint_id, visit.form, error)
    return visit.done(f"{RULES[rule].name}: changed. It counts from now on.", PLACE)


@PAGES.get("/new", ACT)
async def ask_new(visit: Visit) -> Response:
    """For which endpoint; the form for its terms comes next."""
    return visit.page(
        "alert_rule_new.html",
        rules=[(rule, words.name) for rule, words in RULES.items()],
        endpoints=await endpoints_of(visit),
        entered=visit.query,
        place=PLACE,
    )


@PAGES.post("/switch")
async def switch(visit: Visit) -> Response:
    rule, endpoint_id = _named(visit.form)
    enabled = visit.form.text("enabled") == "yes"
    await visit.doorstep.components.alerts.set_rule(visit.org_id, rule, endpoint_id, {"enabled": enabled}, visit.actor)
    return visit.done(f"{RULES[rule].name} is {'on' if enabled else 'off'}.", PLACE)


@PAGES.post("/{alert_rule_id}/reset")
async def reset(visit: Visit) -> Response:
    await visit.doorstep.components.alerts.reset_rule(visit.org_id, visit.id("alert_rule_id"), visit.actor)
    return visit.done("Reset: what is more general counts again.", PLACE)


def _named(fields: Fields) -> tuple[Rule, UUID | None]:
    rule = fields.choice("rule", Rule)
    if rule is None:
        raise InvalidInput("rule", f"must be one of {', '.join(Rule)}")
    return rule, fields.id("endpoint_id")


async def _known(visit: Visit, rule: Rule, endpoint_id: UUID | None) -> AlertRule:
    """What holds there now: its own, else the general one."""
    found = [one for one in await visit.doorstep.components.alerts.rules(visit.org_id) if one.rule is rule]
    own = (one for one in found if one.endpoint_id == endpoint_id)
    return next(own, found[0])


def _texts(rule: AlertRule) -> dict[str, str]:
    """Its terms as the form shows them."""
    texts = {"cooldown_seconds": span_text(rule.cooldown_seconds), "enabled": "yes" if rule.enabled else ""}
    if rule.rule in MEASURED:
        late = rule.rule is Rule.OLDEST_DUE
        texts["threshold"] = span_text(rule.threshold) if late else f"{rule.threshold:.15g}"
    if rule.rule is Rule.FAILURE_RATE:
        texts |= {"window_seconds": span_text(rule.window_seconds), "minimum": str(rule.minimum)}
    return texts


def _changes(form: Fields, known: AlertRule) -> dict[str, Any]:
    """What was changed; what was emptied stays as it is."""
    before = _texts(known)
    touched = {name for name in before if name != "enabled" and form.text(name) not in (None, before[name])}
    changes: dict[str, Any] = {name: _read(form, name, known.rule) for name in touched}
    if form.flag("enabled") != known.enabled:
        changes["enabled"] = form.flag("enabled")
    return changes


def _read(form: Fields, name: str, rule: Rule) -> float | int | None:
    if name in _SPANS or (name == "threshold" and rule is Rule.OLDEST_DUE):
        return span_from_text(name, form.text(name) or "")
    return form.whole(name, 0, _LARGEST) if name == "minimum" else form.number(name, 0, _LARGEST)


async def _form(
    visit: Visit, known: AlertRule, endpoint_id: UUID | None, entered: Fields, error: InvalidInput | None = None
) -> Response:
    name = (
        None
        if endpoint_id is None
        else (await visit.doorstep.components.reader.endpoint(visit.org_id, endpoint_id)).name
    )
    return visit.filled(
        "alert_rule_edit.html",
        entered,
        error,
        rule=known.rule,
        words=RULES[known.rule],
        fires=fires(known),
        enabled=known.enabled,
        terms=_texts(known),
        endpoint_id=endpoint_id,
        endpoint_name=name,
        place=PLACE,
    )
