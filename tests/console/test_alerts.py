"""Alerts, rules, channels and silences over HTTP, as a user without scripts sees them."""

from __future__ import annotations

import html
import re

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY, SECOND, seconds, to_iso
from doorstep.errors import NotFound
from doorstep.model.alert import OPERATIONS_ORG, AlertRule, Channel, ChannelKind, Rule, Silence
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.operations.channels import ChannelForm
from tests.console.firing import ALERTS, alerts, end, fire
from tests.console.visiting import Console
from tests.support.scene import Scene, until

RULES, CHANNELS, SILENCES = f"{ALERTS}/rules", f"{ALERTS}/channels", f"{ALERTS}/silences"


async def rule_of(scene: Scene, rule: Rule, endpoint_name: str | None = None) -> AlertRule | None:
    found = [one for one in await scene.doorstep.components.alerts.rules(DEFAULT_ORG) if one.rule is rule]
    names = {one.endpoint_id: one.name for one in await scene.endpoints()}
    return next((one for one in found if names.get(one.endpoint_id or DEFAULT_ORG) == endpoint_name), None)


async def channel(scene: Scene, path: str = "/alerts", **fields: object) -> Channel:
    given = {"name": "pager", "kind": ChannelKind.WEBHOOK, "target": scene.receiver.url(path)} | fields
    form = ChannelForm(**given)  # type: ignore[arg-type]
    made, _ = await scene.doorstep.components.channels.create(form, DEFAULT_ORG, "test")
    return made


# -- alerts --------------------------------------------------------------------------------------------------------


async def test_without_alerts_nothing_is_the_matter_and_it_says_that_nobody_would_be_told(
    console: Console, viewer: Console
) -> None:
    shown = await console.get(ALERTS)
    assert "No alerts." in shown.text
    assert "Nobody is notified of alerts: there is no channel yet. New channel" in shown.text
    assert "New channel" not in (await viewer.get(ALERTS)).text


async def test_what_is_open_is_listed_with_its_error_and_above_what_has_ended(scene: Scene, console: Console) -> None:
    past = await fire(scene, Rule.DEAD_LETTER, "crm")
    await end(scene, past)
    await fire(scene, Rule.CIRCUIT_OPENED, "erp")
    shown = await console.get(ALERTS)
    assert shown.text.index("erp: circuit opened") < shown.text.index("crm: a delivery failed permanently")
    titled = r'crm: a delivery failed permanently</a><span class="under"><strong>AUTH_FAILED</strong>'
    assert titled in shown.source, "the error is under the title"
    assert re.findall(r'<h2 class="list-title">(\w+)</h2>', shown.source) == ["Open", "Ended"]
    assert "its rule was turned off or reset, after" in shown.text


async def test_a_filter_leaves_out_what_does_not_match(scene: Scene, console: Console) -> None:
    past = await fire(scene, Rule.DEAD_LETTER, "crm")
    await end(scene, past)
    present = await fire(scene, Rule.CIRCUIT_OPENED, "erp")
    for query, there, gone in (
        ("state=open", present, past),
        ("state=ended", past, present),
        (f"rule={past.rule}", past, present),
        (f"endpoint_id={present.endpoint_id}", present, past),
    ):
        source = (await console.get(f"{ALERTS}?{query}")).source
        assert f"row-{there.alert_id}" in source, query
        assert f"row-{gone.alert_id}" not in source, query
    assert (await console.get(f"{ALERTS}?state=none")).status == 422
    assert "No alerts for this filter." in (await console.get(f"{ALERTS}?rule=oldest_due")).text


async def test_the_page_of_an_alert_tells_its_story_and_leads_to_where_it_is_repaired(
    scene: Scene, console: Console
) -> None:
    made = await channel(scene)
    alert = await fire(scene)
    shown = await console.get(f"{ALERTS}/{alert.alert_id}")
    assert "erp: a delivery failed permanently" in shown.text
    assert "AUTH_FAILED" in shown.text
    assert f'<a class="button main" href="/console/events/{alert.event_id}">Open the event</a>' in shown.source
    assert f": {made.name}" in shown.text, "who is told"
    assert "Acknowledged by nobody yet" in shown.text
    await end(scene, alert)
    assert "because its rule was turned off or reset; it lasted" in (await console.get(shown.path)).text


async def test_what_is_measured_is_told_with_its_limit_which_it_need_not_be_above_any_more(
    scene: Scene, console: Console
) -> None:
    await scene.doorstep.components.alerts.set_rule(DEFAULT_ORG, Rule.DEAD_LETTERS, None, {"threshold": 0}, "test")
    await fire(scene)

    async def measured() -> bool:
        return any(one.rule is Rule.DEAD_LETTERS for one in await alerts(scene))

    await until(measured, "an alert about the number of dead letters")
    (alert,) = [one for one in await alerts(scene) if one.rule is Rule.DEAD_LETTERS]
    assert '1<span class="under">limit 0</span>' in (await console.get(ALERTS)).source
    assert "Measured 1, limit 0" in (await console.get(f"{ALERTS}/{alert.alert_id}")).text


async def test_an_alert_that_is_silenced_says_so(scene: Scene, console: Console) -> None:
    desk = scene.doorstep.components.alerts
    await channel(scene)
    await desk.silence(DEFAULT_ORG, "test", until_at=scene.clock.now() + DAY)
    alert = await fire(scene)
    assert "silenced" in (await console.get(ALERTS)).text
    assert "Notified not during a silence" in (await console.get(f"{ALERTS}/{alert.alert_id}")).text


async def test_who_acknowledges_first_stays(scene: Scene, console: Console, viewer: Console) -> None:
    alert = await fire(scene)
    await console.get(ALERTS)
    act = f"{ALERTS}/{alert.alert_id}/acknowledge"
    shown = await console.post(act, back=ALERTS)
    assert (shown.path, shown.said) == (ALERTS, "Acknowledged: others see that you are working on it.")
    kept = await scene.doorstep.components.alerts.alert(DEFAULT_ORG, alert.alert_id)
    for path in (ALERTS, f"{ALERTS}/{alert.alert_id}"):
        assert f'<span title="{kept.acknowledged_by}">test</span>' in (await console.get(path)).source, path
    await scene.doorstep.components.alerts.acknowledge(DEFAULT_ORG, alert.alert_id, "somebody else")
    assert (await scene.doorstep.components.alerts.alert(DEFAULT_ORG, alert.alert_id)) == kept
    await viewer.get("/console")
    assert (await viewer.post(act)).status == 403
    assert "/acknowledge" not in (await viewer.get(ALERTS)).source


async def test_an_unknown_alert_is_not_found(console: Console) -> None:
    for name in ("0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b", "nonsense"):
        assert (await console.get(f"{ALERTS}/{name}")).status == 404


# -- rules ---------------------------------------------------------------------------------------------------------


async def test_every_rule_is_listed_with_when_it_fires(console: Console, viewer: Console) -> None:
    shown = await console.get(RULES)
    for words in (
        "more than 5% of the finished deliveries failed permanently within 15 min, and at least 20 finished",
        "there are more than 50 dead letters",
        "overdue by more than 5 min",
    ):
        assert words in shown.text.replace("\u2009", " "), words
    assert "Edit" not in (await viewer.get(RULES)).text


async def test_a_threshold_is_changed_for_all_endpoints_and_reset(scene: Scene, console: Console) -> None:
    shown = await console.get(f"{RULES}/edit?rule=failure_rate")
    assert 'name="threshold" type="text" value="5"' in shown.source
    terms = {"threshold": "2.5", "window_seconds": "1h", "minimum": "20", "cooldown_seconds": "1h", "enabled": "yes"}
    changed = await console.post(f"{RULES}/edit", terms | {"rule": "failure_rate"})
    assert changed.said == "Failure rate: saved."
    rule = await rule_of(scene, Rule.FAILURE_RATE)
    assert rule is not None and (rule.threshold, rule.window_seconds, rule.minimum) == (2.5, 3_600.0, 20)
    (line, *_) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "alert_rule.set", None, 10)).items
    assert line.reason == "threshold=2.5, window_seconds=3600", "only what was changed"
    assert "changed" in changed.text
    await console.post(f"{RULES}/{rule.config_id}/reset")
    reset = await rule_of(scene, Rule.FAILURE_RATE)
    assert reset is not None and (reset.threshold, reset.version) == (5.0, 0)


async def test_a_form_that_was_not_touched_changes_nothing(scene: Scene, console: Console) -> None:
    await console.get(RULES)
    terms = {"threshold": "5m", "cooldown_seconds": "1h", "enabled": "yes", "rule": "oldest_due"}
    assert (await console.post(f"{RULES}/edit", terms)).said == "Nothing was changed."
    rule = await rule_of(scene, Rule.OLDEST_DUE)
    assert rule is not None and rule.version == 0


async def test_an_endpoint_gets_a_rule_of_its_own(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="erp")
    assert "erp" in (await console.get(f"{RULES}/new")).text
    about = {"rule": "dead_letters", "endpoint_id": endpoint.endpoint_id}
    shown = await console.get(f"{RULES}/edit?rule=dead_letters&endpoint_id={endpoint.endpoint_id}")
    assert "Dead letters of erp" in shown.text
    await console.post(f"{RULES}/edit", about | {"threshold": "50", "cooldown_seconds": "1h", "enabled": "yes"})
    own = await rule_of(scene, Rule.DEAD_LETTERS, "erp")
    assert own is not None and own.threshold == 50.0, "equal to the general one, and from now on apart from it"
    await console.post(f"{RULES}/edit", about | {"threshold": "7", "cooldown_seconds": "1h", "enabled": "yes"})
    own, general = await rule_of(scene, Rule.DEAD_LETTERS, "erp"), await rule_of(scene, Rule.DEAD_LETTERS)
    assert own is not None and general is not None and (own.threshold, general.threshold) == (7.0, 50.0)


async def test_a_rule_is_turned_off_and_on(scene: Scene, console: Console, viewer: Console) -> None:
    await console.get(RULES)
    for said, enabled in (("Circuit opened is off.", False), ("Circuit opened is on.", True)):
        fields = {"rule": "circuit_opened"} | ({"enabled": "yes"} if enabled else {})
        assert (await console.post(f"{RULES}/switch", fields)).said == said
        rule = await rule_of(scene, Rule.CIRCUIT_OPENED)
        assert rule is not None and rule.enabled is enabled
    await viewer.get("/console")
    assert (await viewer.post(f"{RULES}/switch", rule="circuit_opened")).status == 403


WRONG_TERMS = [
    ("threshold", "many", "must be a number"),
    ("threshold", "101", "must be from 0 to 100, got 101"),
    ("window_seconds", "soon", "is not a duration"),
    ("window_seconds", "1s", "must be from 60 to"),
    ("minimum", "1.5", "must be a whole number"),
    ("cooldown_seconds", "0", "must be from 60 to"),
]


async def test_a_wrong_term_is_named_and_what_was_entered_stays(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    terms = {"threshold": "5", "window_seconds": "15m", "minimum": "20", "cooldown_seconds": "1h", "enabled": "yes"}
    await console.get(RULES)
    for field, value, words in WRONG_TERMS:
        with subtests.test(field=field, value=value):
            shown = await console.post(f"{RULES}/edit", terms | {field: value, "rule": "failure_rate"})
            assert shown.status == 422
            assert words in shown.text
            assert f'value="{value}"' in shown.source
            rule = await rule_of(scene, Rule.FAILURE_RATE)
            assert rule is not None and rule.version == 0


async def test_an_unknown_rule_or_endpoint_is_refused(console: Console) -> None:
    assert (await console.get(f"{RULES}/edit?rule=nonsense")).status == 422
    assert (await console.get(f"{RULES}/edit")).status == 422
    unknown = "0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b"
    assert (await console.get(f"{RULES}/edit?rule=dead_letter&endpoint_id={unknown}")).status == 404
    await console.get(RULES)
    assert (await console.post(f"{RULES}/{unknown}/reset")).status == 404


# -- channels ------------------------------------------------------------------------------------------------------


async def test_a_webhook_is_created_and_its_secret_shown_this_once(scene: Scene, console: Console) -> None:
    await console.get(f"{CHANNELS}/new")
    target = scene.receiver.url("/alerts?token=abc")
    fields = {"kind": "webhook", "name": "pager", "target": target, "rules": ["circuit_opened", "oldest_due"]}
    shown = await console.post(f"{CHANNELS}/new", fields | {"recoveries": "yes"})
    assert shown.status == 200 and shown.headers["cache-control"] == "no-store"
    secret = re.search(r'<code id="secret">(whsec_[^<]+)</code>', shown.source)
    assert secret
    (made,) = await scene.doorstep.components.channels.reader.channels(DEFAULT_ORG)
    assert (made.name, made.rules, made.recoveries) == ("pager", (Rule.CIRCUIT_OPENED, Rule.OLDEST_DUE), True)
    listed = await console.get(CHANNELS)
    assert secret[1] not in listed.source and "abc" not in listed.source
    assert "circuit opened, oldest due" in listed.text


async def test_a_chat_is_created_without_its_address_ever_being_shown(scene: Scene, console: Console) -> None:
    await console.get(f"{CHANNELS}/new")
    shown = await console.post(f"{CHANNELS}/new", kind="slack", name="chat", target=scene.receiver.url("/T0/B0/sesame"))
    assert shown.said == "chat was created. Send a test to see whether it arrives."
    assert "sesame" not in shown.source
    (made,) = await scene.doorstep.components.channels.reader.channels(DEFAULT_ORG)
    assert not made.recoveries, "the box was not ticked"


WRONG_CHANNELS = [
    ({"kind": "email"}, "e-mail needs a mail server"),
    ({"kind": "webhook", "target": "ftp://x"}, '<a href="#target">A field</a>'),
    ({"kind": "webhook", "target": "http://10.1.2.3/x"}, "must not point to 10.1.2.3"),
    ({"kind": "webhook", "name": ""}, "must be 1 to 100 characters"),
    ({"kind": "pigeon"}, "must be one of webhook, slack, email, apprise"),
    ({"kind": "webhook", "rules": "nonsense"}, "must be some of"),
    ({"kind": "webhook", "endpoint_ids": "0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b"}, "there is no endpoint"),
]


async def test_a_channel_that_cannot_work_is_refused_by_name(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    for fields, words in WRONG_CHANNELS:
        with subtests.test(fields=fields):
            await console.get(f"{CHANNELS}/new")
            shown = await console.post(f"{CHANNELS}/new", {"name": "pager", "target": "a@b.example"} | fields)
            assert shown.status == 422
            assert words in shown.source
            assert await scene.doorstep.components.channels.reader.channels(DEFAULT_ORG) == []


async def test_a_test_arrives_and_the_list_says_so_and_too_many_are_refused(scene: Scene, console: Console) -> None:
    made = await channel(scene)
    await console.get(CHANNELS)
    shown = await console.post(f"{CHANNELS}/{made.channel_id}/test", back=CHANNELS)
    assert shown.said and shown.said.startswith("The test was sent")

    async def delivered() -> bool:
        return "delivered" in (await console.get(CHANNELS)).text.partition("Last test")[2]

    await until(delivered, "the test in the list")
    assert b"This is a test of the channel pager" in scene.receiver.requests[-1].body
    again = await console.post(f"{CHANNELS}/{made.channel_id}/test", back=CHANNELS)
    assert again.said and "once in 5 seconds" in again.said


async def test_a_channel_that_fails_shows_why(scene: Scene, console: Console) -> None:
    made = await channel(scene)
    scene.receiver.says(401)
    await scene.doorstep.components.channels.test(DEFAULT_ORG, made.channel_id, "test")

    async def failed() -> bool:
        return "AUTH_FAILED" in (await console.get(CHANNELS)).text

    await until(failed, "the error in the list")


async def test_a_disabled_channel_is_resumed(scene: Scene, console: Console) -> None:
    made = await channel(scene)
    scene.receiver.says(410)
    await scene.doorstep.components.channels.test(DEFAULT_ORG, made.channel_id, "test")

    async def disabled() -> bool:
        return "Resume" in (await console.get(CHANNELS)).text

    await until(disabled, "the disabled channel")
    scene.receiver.says(200)
    await console.post(f"{CHANNELS}/{made.channel_id}/resume")
    endpoint = await scene.doorstep.components.store.get(Endpoint, OPERATIONS_ORG, made.channel_id)
    assert endpoint.state is EndpointState.ACTIVE
    assert "Resume" not in (await console.get(CHANNELS)).text


async def test_a_channel_is_deleted_after_a_question(scene: Scene, console: Console, viewer: Console) -> None:
    made = await channel(scene)
    question = await console.get(f"{CHANNELS}/{made.channel_id}/delete")
    assert "Delete pager?" in question.text
    assert (await viewer.get(f"{CHANNELS}/{made.channel_id}/delete")).status == 403
    refused = await console.post(f"{CHANNELS}/{made.channel_id}/delete")
    assert refused.asks_why and "Delete pager?" in refused.text
    shown = await console.post(f"{CHANNELS}/{made.channel_id}/delete", reason="nobody reads it")
    assert shown.said == "The channel was deleted."
    (line,) = (await scene.doorstep.components.reader.audit(DEFAULT_ORG, None, "channel.delete", None, 10)).items
    assert line.reason == "nobody reads it"
    with pytest.raises(NotFound):
        await scene.doorstep.components.channels.reader.channel(DEFAULT_ORG, made.channel_id)


# -- silences ------------------------------------------------------------------------------------------------------


async def silences(scene: Scene) -> list[Silence]:
    return await scene.doorstep.components.alerts.silences(DEFAULT_ORG)


async def test_a_silence_of_some_hours_is_made_and_ended(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint(name="erp")
    await console.get(f"{SILENCES}/new")
    fields = {"span": "4h", "rule": "dead_letter", "endpoint_id": endpoint.endpoint_id, "reason": "planned <work>"}
    shown = await console.post(f"{SILENCES}/new", fields | {"back": SILENCES})
    (made,) = await silences(scene)
    assert (made.rule, made.endpoint_id, made.reason) == (Rule.DEAD_LETTER, endpoint.endpoint_id, "planned <work>")
    assert abs(made.until_at - made.from_at - seconds(4 * 3_600)) < 5 * SECOND
    assert "planned <work>" in shown.text and html.escape("planned <work>") in shown.source
    assert "silent" in shown.text and "erp" in shown.text
    assert (
        await console.post(f"{SILENCES}/{made.silence_id}/end")
    ).said == "Silence ended. Open alerts are notified now."
    assert await silences(scene) == []


async def test_a_silence_may_begin_later_and_have_an_end_of_its_own(scene: Scene, console: Console) -> None:
    begin, until_at = scene.clock.now() + DAY, scene.clock.now() + 2 * DAY
    await console.get(f"{SILENCES}/new")
    await console.post(f"{SILENCES}/new", from_at=to_iso(begin)[:16], until_at=to_iso(until_at)[:16])
    (made,) = await silences(scene)
    assert begin - made.from_at < 60 * SECOND and until_at - made.until_at < 60 * SECOND
    assert "planned" in (await console.get(SILENCES)).text


async def test_a_silence_that_has_ended_says_so(scene: Scene, console: Console) -> None:
    desk = scene.doorstep.components.alerts
    await desk.silence(DEFAULT_ORG, "test", until_at=scene.clock.now() + seconds(60))
    scene.leap(120)
    shown = await console.get(SILENCES)
    assert '<span class="badge ended">ended</span>' in shown.source and "End now" not in shown.text


WRONG_SILENCES = [
    ({"until_at": "2001-01-01T00:00"}, "must be later than now"),
    ({"until_at": "tomorrow"}, "must be a date and a time"),
    ({"span": "9y"}, "must be one of 1h, 4h, 1d, 7d"),
    ({"rule": "nonsense"}, "must be one of"),
    ({"endpoint_id": "nonsense"}, "must be an id"),
]


async def test_a_silence_that_cannot_be_is_refused_by_name(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    for fields, words in WRONG_SILENCES:
        with subtests.test(fields=fields):
            await console.get(f"{SILENCES}/new")
            shown = await console.post(f"{SILENCES}/new", fields)
            assert shown.status == 422 and words in shown.text
            assert await silences(scene) == []


async def test_a_viewer_sees_silences_and_makes_none(scene: Scene, viewer: Console) -> None:
    await scene.doorstep.components.alerts.silence(DEFAULT_ORG, "test", until_at=scene.clock.now() + DAY)
    shown = await viewer.get(SILENCES)
    assert "End now" not in shown.text and "New silence" not in shown.text
    assert (await viewer.get(f"{SILENCES}/new")).status == 403
