"""Channels: where people are told of alerts, whether that works, and how to try it."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response

from doorstep.console.alert_texts import RULES
from doorstep.console.choices import endpoints_of
from doorstep.console.confirming import reason_of
from doorstep.console.fields import Fields
from doorstep.console.page import ACT, Pages
from doorstep.console.shown_once import shown_once
from doorstep.console.visit import Visit
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.alert import Rule
from doorstep.model.channel import Channel, ChannelKind
from doorstep.model.delivery import Delivery
from doorstep.path.channel_form import ChannelForm
from doorstep.path.channel_views import ChannelView, failed_at

PAGES = Pages("/alerts/channels")
PLACE = "/console/alerts/channels"
KINDS = {
    ChannelKind.EMAIL: "E-mail",
    ChannelKind.SLACK: "Slack, Mattermost and the like",
    ChannelKind.WEBHOOK: "Webhook",
    ChannelKind.APPRISE: "Apprise: Telegram, Teams, PagerDuty and many more",
}
_ENDPOINTS_MAX = 100


@PAGES.get()
async def show(visit: Visit) -> Response:
    views = await visit.doorstep.components.channels.reading.views(visit.org_id)
    about = {endpoint_id for view in views for endpoint_id in view.channel.endpoint_ids}
    names = await visit.doorstep.components.reader.endpoint_names(visit.org_id, about)
    rows = [(view, _takes(view.channel, [names[one] for one in view.channel.endpoint_ids])) for view in views]
    return visit.page("alert_channels.html", rows=rows, tested_of=tested_of, failed_at=failed_at)


@PAGES.get("/new", ACT)
async def ask_new(visit: Visit) -> Response:
    return await _form(visit, Fields([("kind", ChannelKind.EMAIL), ("recoveries", "yes")]))


@PAGES.post("/new")
async def create(visit: Visit) -> Response:
    """A webhook's secret is shown in the answer, and nowhere else."""
    desk = visit.doorstep.components.channels
    try:
        channel, secret = await desk.create(_described(visit.form), visit.org_id, visit.actor)
    except (InvalidInput, Conflict) as error:
        return await _form(visit, visit.form, error)
    if channel.means is not ChannelKind.WEBHOOK:
        return visit.done(f"{channel.name} was created. Send a test to see whether it arrives.", PLACE)
    return shown_once(visit, "alert_channel_secret.html", channel=channel, secret=secret, place=PLACE)


@PAGES.post("/{channel_id}/test")
async def test(visit: Visit) -> Response:
    await visit.doorstep.components.channels.test(visit.org_id, visit.id("channel_id"), visit.actor)
    return visit.done("The test is on its way; the list says in a moment whether it arrived.", PLACE)


@PAGES.post("/{channel_id}/resume")
async def resume(visit: Visit) -> Response:
    await visit.doorstep.components.channels.resume(visit.org_id, visit.id("channel_id"), visit.actor)
    return visit.done("It is told again, also of what waited for less than a day.", PLACE)


@PAGES.get("/{channel_id}/delete", ACT)
async def ask_delete(visit: Visit) -> Response:
    return await _deleting(visit)


@PAGES.post("/{channel_id}/delete")
async def delete(visit: Visit) -> Response:
    try:
        reason = reason_of(visit.form, required=True)
        await visit.doorstep.components.channels.delete(visit.org_id, visit.id("channel_id"), visit.actor, reason)
    except InvalidInput as error:
        return await _deleting(visit, error)
    return visit.done("The channel was deleted.", PLACE)


async def _deleting(visit: Visit, error: InvalidInput | None = None) -> Response:
    channel = await visit.doorstep.components.channels.reading.channel(visit.org_id, visit.id("channel_id"))
    return visit.filled("alert_channel_delete.html", visit.form, error, channel=channel, place=PLACE)


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


async def _form(visit: Visit, entered: Fields, error: InvalidInput | Conflict | None = None) -> Response:
    return visit.filled(
        "alert_channel_new.html",
        entered,
        error,
        flawed=error.field if isinstance(error, InvalidInput) else "",
        kinds=KINDS,
        rules=RULES,
        endpoints=await endpoints_of(visit),
        place=PLACE,
    )
