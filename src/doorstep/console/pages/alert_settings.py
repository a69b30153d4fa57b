"""Alert rules, silences and channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from starlette.responses import Response

from doorstep.clock import Instant, seconds
from doorstep.console.confirm import endpoints_of, reason_of
from doorstep.console.fields import Fields, parsed
from doorstep.console.formatting import span_text
from doorstep.console.pages.alerts import RULES, fires
from doorstep.console.request import ACT, FormError, PageRequest, Pages
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.alert import MEASURED, AlertRule, Channel, ChannelKind, Rule, Silence
from doorstep.model.delivery import Delivery
from doorstep.operations.channels import ChannelForm, ChannelView, failed_at

# -- rules -------------------------------------------------------------------------------------------------

RULE_PAGES = Pages("/alerts/rules")
RULE_NAMES = [(rule, texts.name) for rule, texts in RULES.items()]
_LARGEST = 10**15
"""The largest number that the form accepts. The form only parses numbers; the alert service checks their bounds."""
_SPANS = ("window_seconds", "cooldown_seconds")


@RULE_PAGES.get()
async def show_rules(request: PageRequest) -> Response:
    rules = await request.components.alerts.rules(request.org_id)
    names = await _endpoint_names(request, rules)
    return request.page("alert_rules.html", rows=[(one, fires(one)) for one in rules], names=names, rules=RULES)


async def _endpoint_names(request: PageRequest, items: Iterable[AlertRule | Silence]) -> dict[UUID, str]:
    about = {one.endpoint_id for one in items if one.endpoint_id is not None}
    return await request.reader.endpoint_names(request.org_id, about)


async def _rule_form(request: PageRequest, error: FormError | None) -> Response:
    """The form for a rule, either for one endpoint or for all endpoints. For an endpoint without its own rule, the form
    starts with the values of the general rule."""
    rule, endpoint_id = _rule_and_endpoint(request.sent)
    current, name = await _current(request, rule, endpoint_id), None
    if endpoint_id is not None:
        name = (await request.reader.endpoint(request.org_id, endpoint_id)).name
    return request.form_page(
        "alert_rule_edit.html",
        error,
        Fields(_texts(current).items()),
        rule=rule,
        texts=RULES[rule],
        fires=fires(current),
        enabled=current.enabled,
        terms=_texts(current),
        endpoint_id=endpoint_id,
        endpoint_name=name,
        place=RULE_PAGES.path,
    )


@RULE_PAGES.form("/edit", _rule_form)
async def edit_rule(request: PageRequest) -> Response:
    rule, endpoint_id = _rule_and_endpoint(request.form)
    current = await _current(request, rule, endpoint_id)
    changes = _changes(request.form, current)
    if not changes and (endpoint_id is None or current.endpoint_id is not None):
        return request.done("Nothing was changed.", RULE_PAGES.path)
    changes = changes or {"enabled": current.enabled}  # the endpoint gets its own rule, equal to the general rule
    await request.components.alerts.set_rule(request.org_id, rule, endpoint_id, changes, request.actor)
    return request.done(f"{RULES[rule].name}: saved.", RULE_PAGES.path)


@RULE_PAGES.get("/new", ACT)
async def ask_new_rule(request: PageRequest) -> Response:
    """The first step of a new rule: choose the endpoint. The form for the rule itself comes next."""
    endpoints = await endpoints_of(request)
    return request.form_page(
        "alert_rule_new.html", None, request.query, rules=RULE_NAMES, endpoints=endpoints, place=RULE_PAGES.path
    )


@RULE_PAGES.post("/switch")
async def switch_rule(request: PageRequest) -> Response:
    rule, endpoint_id = _rule_and_endpoint(request.form)
    enabled = request.form.text("enabled") == "yes"
    await request.components.alerts.set_rule(request.org_id, rule, endpoint_id, {"enabled": enabled}, request.actor)
    return request.done(f"{RULES[rule].name} is {'on' if enabled else 'off'}.", RULE_PAGES.path)


RULE_PAGES.act(
    "/{alert_rule_id}/reset",
    lambda components: components.alerts.reset_rule,
    "Reset: the more general rule applies again.",
)


def _rule_and_endpoint(fields: Fields) -> tuple[Rule, UUID | None]:
    return fields.required_choice("rule", Rule), fields.id("endpoint_id")


async def _current(request: PageRequest, rule: Rule, endpoint_id: UUID | None) -> AlertRule:
    """The rule that applies now: the endpoint's own rule if there is one, otherwise the general rule."""
    found = [one for one in await request.components.alerts.rules(request.org_id) if one.rule is rule]
    own = (one for one in found if one.endpoint_id == endpoint_id)
    return next(own, found[0])


def _texts(rule: AlertRule) -> dict[str, str]:
    """The settings of a rule as the form shows them."""
    texts = {"cooldown_seconds": span_text(rule.cooldown_seconds), "enabled": "yes" if rule.enabled else ""}
    if rule.rule in MEASURED:
        late = rule.rule is Rule.OLDEST_DUE
        texts["threshold"] = span_text(rule.threshold) if late else f"{rule.threshold:.15g}"
    if rule.rule is Rule.FAILURE_RATE:
        texts |= {"window_seconds": span_text(rule.window_seconds), "minimum": str(rule.minimum)}
    return texts


def _changes(form: Fields, current: AlertRule) -> dict[str, Any]:
    """The settings that the user changed. Clearing a field leaves its setting unchanged."""
    before = _texts(current)
    touched = {name for name in before if name != "enabled" and form.text(name) not in (None, before[name])}
    changes: dict[str, Any] = {name: _value(form, name, current.rule) for name in touched}
    if form.flag("enabled") != current.enabled:
        changes["enabled"] = form.flag("enabled")
    return changes


def _value(form: Fields, name: str, rule: Rule) -> float | int | None:
    if name in _SPANS or (name == "threshold" and rule is Rule.OLDEST_DUE):
        return form.span(name)
    return form.whole(name, 0, _LARGEST) if name == "minimum" else form.number(name, 0, _LARGEST)


# -- silences ----------------------------------------------------------------------------------------------

SILENCE_PAGES = Pages("/alerts/silences")
SPANS = {"1h": 3_600, "4h": 14_400, "1d": 86_400, "7d": 604_800}
"""The durations to choose from, in seconds. For any other duration, the user enters the time at which the silence
ends."""
_SPAN_NAMES = {"1h": "1 hour", "4h": "4 hours", "1d": "1 day", "7d": "7 days"}
_ORDER = {"silent": 0, "planned": 1, "ended": 2}


@SILENCE_PAGES.get()
async def show_silences(request: PageRequest) -> Response:
    """Shows active silences first, then planned silences, then silences that ended recently."""
    now, found = request.now, await request.components.alerts.silences(request.org_id)
    rows = sorted(((state_of(one, now), one) for one in found), key=lambda row: (_ORDER[row[0]], row[1].until_at))
    names = await _endpoint_names(request, found)
    people = await request.reader.key_names(request.org_id, (one.actor for one in found))
    return request.page("alert_silences.html", rows=rows, names=names, rules=RULES, people=people)


async def _silence_form(request: PageRequest, error: FormError | None) -> Response:
    return request.form_page(
        "alert_silence_new.html",
        error,
        request.sent,
        rules=RULE_NAMES,
        spans=_SPAN_NAMES,
        endpoints=await endpoints_of(request),
        place=request.back if request.sent.flag("back") else SILENCE_PAGES.path,
    )


@SILENCE_PAGES.form("/new", _silence_form)
async def create_silence(request: PageRequest) -> Response:
    form = request.form
    from_at = form.moment("from_at")
    await request.components.alerts.silence(
        request.org_id,
        request.actor,
        until_at=_until(form, from_at or request.now),
        from_at=from_at,
        endpoint_id=form.id("endpoint_id"),
        rule=form.choice("rule", Rule),
        reason=reason_of(form),
    )
    return request.done("No notifications during the silence. Alerts that are open when it ends are notified then.")


SILENCE_PAGES.act(
    "/{silence_id}/end",
    lambda components: components.alerts.end_silence,
    "Silence ended. Open alerts are notified now.",
)


def state_of(silence: Silence, now: Instant) -> str:
    if silence.until_at <= now:
        return "ended"
    return "silent" if silence.from_at <= now else "planned"


def _until(form: Fields, begin: Instant) -> Instant:
    """The end that the user entered; if the user entered none, `begin` plus the chosen duration."""
    end = form.moment("until_at")
    return begin + seconds(form.option("span", SPANS) or SPANS["1h"]) if end is None else end


# -- channels ----------------------------------------------------------------------------------------------

CHANNEL_PAGES = Pages("/alerts/channels")
KINDS = {
    ChannelKind.EMAIL: "E-mail",
    ChannelKind.SLACK: "Slack, Mattermost and compatible",
    ChannelKind.WEBHOOK: "Webhook",
    ChannelKind.APPRISE: "Apprise: Telegram, Teams, PagerDuty and many more",
}
_NEW_CHANNEL = Fields([("kind", ChannelKind.EMAIL), ("recoveries", "yes")])
_ENDPOINTS_MAX = 100


@CHANNEL_PAGES.get()
async def show_channels(request: PageRequest) -> Response:
    views = await request.components.channels.reader.views(request.org_id)
    about = {endpoint_id for view in views for endpoint_id in view.channel.endpoint_ids}
    names = await request.reader.endpoint_names(request.org_id, about)
    rows = [(view, _receives(view.channel, [names[one] for one in view.channel.endpoint_ids])) for view in views]
    return request.page("alert_channels.html", rows=rows, test_result=test_result, failed_at=failed_at)


async def _channel_form(request: PageRequest, error: FormError | None) -> Response:
    return request.form_page(
        "alert_channel_new.html",
        error,
        _NEW_CHANNEL,
        flawed=error.field if isinstance(error, InvalidInput) else "",
        kinds={kind: name for kind, name in KINDS.items() if kind not in request.components.channels.unavailable},
        unavailable=request.components.channels.unavailable,
        rules=RULES,
        endpoints=await endpoints_of(request),
        place=CHANNEL_PAGES.path,
    )


@CHANNEL_PAGES.form("/new", _channel_form, shows=(InvalidInput, Conflict))
async def create_channel(request: PageRequest) -> Response:
    """Create a channel. The signing secret of a webhook is shown only in this response."""
    channels = request.components.channels
    channel, secret = await channels.create(_described(request.form), request.org_id, request.actor)
    if channel.means is not ChannelKind.WEBHOOK:
        return request.done(f"{channel.name} was created. Send a test to see whether it arrives.", CHANNEL_PAGES.path)
    return request.page("alert_channel_secret.html", channel=channel, secret=secret, place=CHANNEL_PAGES.path)


CHANNEL_PAGES.act(
    "/{channel_id}/test",
    lambda components: components.channels.test,
    "The test was sent; the list shows the result in a moment.",
)
CHANNEL_PAGES.act(
    "/{channel_id}/resume",
    lambda components: components.channels.resume,
    "The channel was resumed. It also gets the messages of the last 24 hours.",
)


async def _delete_form(request: PageRequest, error: FormError | None) -> Response:
    channel = await request.components.channels.reader.channel(request.org_id, request.id("channel_id"))
    return request.form_page("alert_channel_delete.html", error, channel=channel, place=CHANNEL_PAGES.path)


@CHANNEL_PAGES.form("/{channel_id}/delete", _delete_form)
async def delete_channel(request: PageRequest) -> Response:
    reason = reason_of(request.form, required=True)
    await request.components.channels.delete(request.org_id, request.id("channel_id"), request.actor, reason)
    return request.done("The channel was deleted.", CHANNEL_PAGES.path)


def test_result(view: ChannelView) -> tuple[str, Delivery] | None:
    """The newest test: the badge for its result, and the delivery of the test message. None if there was no test."""
    if view.last_test is None or view.test_result is None:
        return None
    return ("pending" if view.test_result == "waiting" else view.test_result), view.last_test


def _receives(channel: Channel, endpoints: Iterable[str]) -> list[str]:
    """Describes in words which alerts are sent to a channel."""
    rules = ", ".join(RULES[rule].name.lower() for rule in channel.rules) or "all rules"
    names = ", ".join(endpoints) or "all endpoints"
    return [rules, names, *([] if channel.recoveries else ["no recoveries"])]


def _described(form: Fields) -> ChannelForm:
    kind = form.required_choice("kind", ChannelKind)
    endpoint_ids = form.ids("endpoint_ids")
    if len(endpoint_ids) > _ENDPOINTS_MAX:
        raise InvalidInput("endpoint_ids", f"must be at most {_ENDPOINTS_MAX}")
    return ChannelForm(
        name=form.text("name") or "",
        kind=kind,
        target=form.text("target") or "",
        rules=tuple(parsed("rules", text, Rule, f"must be some of {', '.join(Rule)}") for text in form.texts("rules")),
        endpoint_ids=tuple(endpoint_ids),
        recoveries=form.flag("recoveries"),
    )
