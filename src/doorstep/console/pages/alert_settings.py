"""Alert rules, silences and channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from starlette.responses import Response

from doorstep.clock import Instant, seconds
from doorstep.console.alert_texts import RULES, fires
from doorstep.console.confirm import reason_of, shown_once
from doorstep.console.fields import Fields, one_of
from doorstep.console.page import ACT, Pages
from doorstep.console.policy_text import span_from_text, span_text
from doorstep.console.request import PageRequest
from doorstep.console.selection import endpoints_of
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.alert import MEASURED, AlertRule, Channel, ChannelKind, Rule, Silence
from doorstep.model.delivery import Delivery
from doorstep.operations.channels import ChannelForm, ChannelView, failed_at

RULE_PAGES = Pages("/alerts/rules")
RULES_PATH = "/console/alerts/rules"
_LARGEST = 10**15
"""Where the form reads a number, the engine judges it."""
_SPANS = ("window_seconds", "cooldown_seconds")


@RULE_PAGES.get()
async def show_rules(visit: PageRequest) -> Response:
    rules = await visit.doorstep.components.alerts.rules(visit.org_id)
    about = {one.endpoint_id for one in rules if one.endpoint_id is not None}
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, about)
    return visit.page("alert_rules.html", rows=[(one, fires(one)) for one in rules], names=names, rules=RULES)


@RULE_PAGES.get("/edit", ACT)
async def ask_edit_rule(visit: PageRequest) -> Response:
    """The rule as it is, of all endpoints or of one; without an endpoint that has its own, as it would begin."""
    rule, endpoint_id = _named(visit.query)
    known = await _known(visit, rule, endpoint_id)
    return await _rule_form(visit, known, endpoint_id, Fields(_texts(known).items()))


@RULE_PAGES.post("/edit")
async def edit_rule(visit: PageRequest) -> Response:
    rule, endpoint_id = _named(visit.form)
    known = await _known(visit, rule, endpoint_id)
    try:
        changes = _changes(visit.form, known)
        if not changes and (endpoint_id is None or known.endpoint_id is not None):
            return visit.done("Nothing was changed.", RULES_PATH)
        changes = changes or {"enabled": known.enabled}  # an endpoint gets its own, equal to the general one
        await visit.doorstep.components.alerts.set_rule(visit.org_id, rule, endpoint_id, changes, visit.actor)
    except InvalidInput as error:
        return await _rule_form(visit, known, endpoint_id, visit.form, error)
    return visit.done(f"{RULES[rule].name}: changed. It counts from now on.", RULES_PATH)


@RULE_PAGES.get("/new", ACT)
async def ask_new_rule(visit: PageRequest) -> Response:
    """For which endpoint; the form for its terms comes next."""
    return visit.page(
        "alert_rule_new.html",
        rules=[(rule, words.name) for rule, words in RULES.items()],
        endpoints=await endpoints_of(visit),
        entered=visit.query,
        place=RULES_PATH,
    )


@RULE_PAGES.post("/switch")
async def switch_rule(visit: PageRequest) -> Response:
    rule, endpoint_id = _named(visit.form)
    enabled = visit.form.text("enabled") == "yes"
    await visit.doorstep.components.alerts.set_rule(visit.org_id, rule, endpoint_id, {"enabled": enabled}, visit.actor)
    return visit.done(f"{RULES[rule].name} is {'on' if enabled else 'off'}.", RULES_PATH)


@RULE_PAGES.post("/{alert_rule_id}/reset")
async def reset_rule(visit: PageRequest) -> Response:
    await visit.doorstep.components.alerts.reset_rule(visit.org_id, visit.id("alert_rule_id"), visit.actor)
    return visit.done("Reset: what is more general counts again.", RULES_PATH)


def _named(fields: Fields) -> tuple[Rule, UUID | None]:
    rule = fields.choice("rule", Rule)
    if rule is None:
        raise InvalidInput("rule", f"must be one of {', '.join(Rule)}")
    return rule, fields.id("endpoint_id")


async def _known(visit: PageRequest, rule: Rule, endpoint_id: UUID | None) -> AlertRule:
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


async def _rule_form(
    visit: PageRequest, known: AlertRule, endpoint_id: UUID | None, entered: Fields, error: InvalidInput | None = None
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
        place=RULES_PATH,
    )


SILENCE_PAGES = Pages("/alerts/silences")
SILENCES_PATH = "/console/alerts/silences"
SPANS = {"1h": 3_600, "4h": 14_400, "1d": 86_400, "7d": 604_800}
"""How long, in seconds; anything else is said by its end."""
_SPAN_NAMES = {"1h": "1 hour", "4h": "4 hours", "1d": "1 day", "7d": "7 days"}


@SILENCE_PAGES.get()
async def show_silences(visit: PageRequest) -> Response:
    """What goes on first, then what is to come, then what has ended lately."""
    now, found = visit.now, await visit.doorstep.components.alerts.silences(visit.org_id)
    rows = sorted(((state_of(one, now), one) for one in found), key=lambda row: (_ORDER[row[0]], row[1].until_at))
    about = {one.endpoint_id for one in found if one.endpoint_id is not None}
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, about)
    people = await visit.doorstep.components.reader.key_names(visit.org_id, (one.actor for one in found))
    return visit.page("alert_silences.html", rows=rows, names=names, rules=RULES, people=people)


@SILENCE_PAGES.get("/new", ACT)
async def ask_new_silence(visit: PageRequest) -> Response:
    return await _silence_form(visit, visit.query)


@SILENCE_PAGES.post("/new")
async def create_silence(visit: PageRequest) -> Response:
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
        return await _silence_form(visit, form, error)
    return visit.done("Nobody is told while it lasts. What is still on when it ends is told then.")


@SILENCE_PAGES.post("/{silence_id}/end")
async def end_silence(visit: PageRequest) -> Response:
    await visit.doorstep.components.alerts.end_silence(visit.org_id, visit.id("silence_id"), visit.actor)
    return visit.done("Ended. What is on is told now.", SILENCES_PATH)


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


async def _silence_form(visit: PageRequest, entered: Fields, error: InvalidInput | None = None) -> Response:
    return visit.filled(
        "alert_silence_new.html",
        entered,
        error,
        rules=[(rule, words.name) for rule, words in RULES.items()],
        spans=_SPAN_NAMES,
        endpoints=await endpoints_of(visit),
        place=visit.back if entered.flag("back") else SILENCES_PATH,
    )


CHANNEL_PAGES = Pages("/alerts/channels")
CHANNELS_PATH = "/console/alerts/channels"
KINDS = {
    ChannelKind.EMAIL: "E-mail",
    ChannelKind.SLACK: "Slack, Mattermost and the like",
    ChannelKind.WEBHOOK: "Webhook",
    ChannelKind.APPRISE: "Apprise: Telegram, Teams, PagerDuty and many more",
}
_ENDPOINTS_MAX = 100


@CHANNEL_PAGES.get()
async def show_channels(visit: PageRequest) -> Response:
    views = await visit.doorstep.components.channels.reading.views(visit.org_id)
    about = {endpoint_id for view in views for endpoint_id in view.channel.endpoint_ids}
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, about)
    rows = [(view, _takes(view.channel, [names[one] for one in view.channel.endpoint_ids])) for view in views]
    return visit.page("alert_channels.html", rows=rows, tested_of=tested_of, failed_at=failed_at)


@CHANNEL_PAGES.get("/new", ACT)
async def ask_new_channel(visit: PageRequest) -> Response:
    return await _channel_form(visit, Fields([("kind", ChannelKind.EMAIL), ("recoveries", "yes")]))


@CHANNEL_PAGES.post("/new")
async def create_channel(visit: PageRequest) -> Response:
    """A webhook's secret is shown in the answer, and nowhere else."""
    desk = visit.doorstep.components.channels
    try:
        channel, secret = await desk.create(_described(visit.form), visit.org_id, visit.actor)
    except (InvalidInput, Conflict) as error:
        return await _channel_form(visit, visit.form, error)
    if channel.means is not ChannelKind.WEBHOOK:
        return visit.done(f"{channel.name} was created. Send a test to see whether it arrives.", CHANNELS_PATH)
    return shown_once(visit, "alert_channel_secret.html", channel=channel, secret=secret, place=CHANNELS_PATH)


@CHANNEL_PAGES.post("/{channel_id}/test")
async def test_channel(visit: PageRequest) -> Response:
    await visit.doorstep.components.channels.test(visit.org_id, visit.id("channel_id"), visit.actor)
    return visit.done("The test is on its way; the list says in a moment whether it arrived.", CHANNELS_PATH)


@CHANNEL_PAGES.post("/{channel_id}/resume")
async def resume_channel(visit: PageRequest) -> Response:
    await visit.doorstep.components.channels.resume(visit.org_id, visit.id("channel_id"), visit.actor)
    return visit.done("It is told again, also of what waited for less than a day.", CHANNELS_PATH)


@CHANNEL_PAGES.get("/{channel_id}/delete", ACT)
async def ask_delete_channel(visit: PageRequest) -> Response:
    return await _deleting(visit)


@CHANNEL_PAGES.post("/{channel_id}/delete")
async def delete_channel(visit: PageRequest) -> Response:
    try:
        reason = reason_of(visit.form, required=True)
        await visit.doorstep.components.channels.delete(visit.org_id, visit.id("channel_id"), visit.actor, reason)
    except InvalidInput as error:
        return await _deleting(visit, error)
    return visit.done("The channel was deleted.", CHANNELS_PATH)


async def _deleting(visit: PageRequest, error: InvalidInput | None = None) -> Response:
    channel = await visit.doorstep.components.channels.reading.channel(visit.org_id, visit.id("channel_id"))
    return visit.filled("alert_channel_delete.html", visit.form, error, channel=channel, place=CHANNELS_PATH)


def tested_of(view: ChannelView) -> tuple[str, Delivery] | None:
    """What came of the newest test, as the name of its badge, and that message."""
    if view.last_test is None or view.came_of_test is None:
        return None
    return ("pending" if view.came_of_test == "waiting" else view.came_of_test), view.last_test


def _takes(channel: Channel, endpoints: Iterable[str]) -> list[str]:
    """Which alerts it is told of, in words."""
    rules = ", ".join(RULES[rule].name.lower() for rule in channel.rules) or "all rules"
    of = ", ".join(endpoints) or "all endpoints"
    return [rules, of, *([] if channel.recoveries else ["not when it ends"])]


def _described(form: Fields) -> ChannelForm:
    kind = form.choice("kind", ChannelKind)
    if kind is None:
        raise InvalidInput("kind", f"must be one of {', '.join(ChannelKind)}")
    endpoint_ids = form.ids("endpoint_ids")
    if len(endpoint_ids) > _ENDPOINTS_MAX:
        raise InvalidInput("endpoint_ids", f"must be at most {_ENDPOINTS_MAX}")
    return ChannelForm(
        name=form.text("name") or "",
        kind=kind,
        target=form.text("target") or "",
        rules=tuple(_rule(text) for text in form.texts("rules")),
        endpoint_ids=tuple(endpoint_ids),
        recoveries=form.flag("recoveries"),
    )


def _rule(text: str) -> Rule:
    try:
        return Rule(text)
    except ValueError:
        raise InvalidInput("rules", f"must be of {', '.join(Rule)}") from None


async def _channel_form(visit: PageRequest, entered: Fields, error: InvalidInput | Conflict | None = None) -> Response:
    return visit.filled(
        "alert_channel_new.html",
        entered,
        error,
        flawed=error.field if isinstance(error, InvalidInput) else "",
        kinds=KINDS,
        rules=RULES,
        endpoints=await endpoints_of(visit),
        place=CHANNELS_PATH,
    )
