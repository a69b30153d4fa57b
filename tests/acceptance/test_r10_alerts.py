"""R10.4: a problem is notified once when it starts and once when it ends, through real mail and HTTP servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook

from doorstep.clock import to_datetime
from doorstep.model.endpoint import CircuitRules, Endpoint
from doorstep.stores.store import Topic
from tests.acceptance.mailbox import Mailbox, receiving_mail
from tests.support.api import Api, serving
from tests.support.loop_receiver import Answer, Receiver, Request
from tests.support.scene import NEVER_OPENS, Scene, until

CONSOLE = "https://doorstep.example"
NO_PAUSE = [0.01, 0.01, 0.01]
NOBODY = UUID(int=1)


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    async with receiving_mail() as it:
        yield it


@pytest.fixture
async def scene(database_url: str, receiver: Receiver, mailbox: Mailbox) -> AsyncIterator[Scene]:
    """A scene with a mail server."""
    made = Scene(database_url, receiver)
    await made.open(smtp_url=mailbox.url, smtp_from="doorstep@shop.example", public_url=CONSOLE)
    yield made
    receiver.hold.set()
    await made.close()


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with serving(scene) as it:
        yield it


class Office:
    """A recipient with every kind of channel, and what it received."""

    def __init__(self, scene: Scene, api: Api, mailbox: Mailbox) -> None:
        self.scene = scene
        self.api = api
        self.mailbox = mailbox
        self.secret = ""

    async def open(self, **fields: Any) -> Office:
        url = self.scene.receiver.url
        hook = await self.channel("webhook", url("/alerts"), **fields)
        self.secret = hook["secret"]
        await self.channel("slack", url("/slack"), **fields)
        await self.channel("email", "ops@shop.example, boss@shop.example", **fields)
        return self

    async def channel(self, kind: str, target: str, **fields: Any) -> dict[str, Any]:
        answer = await self.api.post("/v1/channels", {"name": kind, "kind": kind, "target": target, **fields})
        assert answer.status == 201, answer.body
        return answer.json

    def requests(self, path: str) -> list[Request]:
        return [one for one in self.scene.receiver.requests if one.path == path]

    @property
    def news(self) -> list[dict[str, Any]]:
        """The messages of the signed webhook. A wrong signature is an error."""
        return [self._verified(one) for one in self.requests("/alerts")]

    def _verified(self, request: Request) -> dict[str, Any]:
        """Compare with a new signature. The library cannot verify it, because it does not use the scene's clock."""
        headers = request.headers
        at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        assert headers["webhook-signature"] == Webhook(self.secret).sign(
            headers["webhook-id"], at, request.body.decode()
        )
        return json.loads(request.body)  # type: ignore[no-any-return]

    def told(self, rule: str | None = None) -> list[tuple[str, str]]:
        """Type and rule of each message, in order."""
        found = [(one["type"], one["data"]["rule"]) for one in self.news]
        return [one for one in found if rule in (None, one[1])]

    async def until_told(self, count: int, rule: str | None = None) -> None:
        await until(lambda: len(self.told(rule)) >= count, f"{count} messages")

    async def alerts(self, query: str = "") -> list[dict[str, Any]]:
        return await self.api.all(f"/v1/alerts?{query}", "alerts")

    async def at_rest(self) -> None:
        """Wait until every incident has been processed and every message delivered."""
        store = self.scene.doorstep.components.store

        async def over() -> bool:
            return not await store.any_waiting(Topic.INCIDENTS) and not await store.any_waiting(Topic.OUTBOX)

        await until(over, "rest")
        await asyncio.sleep(0.3)


@pytest.fixture
async def office(scene: Scene, api: Api, mailbox: Mailbox) -> Office:
    return await Office(scene, api, mailbox).open()


async def shop(scene: Scene, **fields: Any) -> Endpoint:
    return await scene.endpoint("/shop", **{"name": "shop", "event_types": ("order.*",)} | fields)


def answers(scene: Scene, **statuses: int) -> None:
    """Set the answers per path; other paths get 200."""
    scene.receiver.answer = lambda request: Answer(statuses.get(request.path.strip("/"), 200))


# -- the story ---------------------------------------------------------------------------------------------


async def test_one_dead_letter_alert_and_one_circuit_alert_arrive_and_one_recovery(
    scene: Scene, office: Office
) -> None:
    endpoint = await shop(
        scene, policy=NO_PAUSE, circuit=CircuitRules(failures_max=4, probe_seconds_min=300, open_seconds=300)
    )
    answers(scene, shop=503)
    lost = await scene.send()
    await office.until_told(2)
    assert sorted(office.told()) == [("alert.fired", "circuit_opened"), ("alert.fired", "dead_letter")]
    by_rule = {one["data"]["rule"]: one["data"] for one in office.news}
    assert by_rule["dead_letter"]["error_code"] == "SERVICE_UNAVAILABLE"
    error = "The receiver could not handle the request (503 Service Unavailable)."
    assert by_rule["dead_letter"]["error_reason"] == error
    assert by_rule["dead_letter"]["event_id"] == str(lost.event_id)
    assert by_rule["dead_letter"]["link"] == f"{CONSOLE}/console/events/{lost.event_id}"
    assert by_rule["circuit_opened"]["link"] == f"{CONSOLE}/console/endpoints/{endpoint.endpoint_id}"
    assert by_rule["circuit_opened"]["error_reason"] == "4 failures in a row"

    await until(lambda: len(office.mailbox.mails) == 2 and len(office.requests("/slack")) == 2, "the others")
    letter = next(mail for mail in office.mailbox.mails if "failed permanently" in mail.subject)
    assert letter.subject == "[Doorstep] shop: a delivery failed permanently"
    assert letter.sender == "doorstep@shop.example"
    assert letter.to == ["ops@shop.example", "boss@shop.example"]
    assert f"Error: SERVICE_UNAVAILABLE {error}" in letter.text
    assert f"{CONSOLE}/console/events/{lost.event_id}" in letter.text
    slack = [json.loads(one.body)["text"] for one in office.requests("/slack")]
    assert any("shop: circuit opened" in text and CONSOLE in text for text in slack)

    waiting = await scene.send()
    scene.leap(301)  # the probe is sent and fails: the circuit has been open all the time
    await scene.until_tried(waiting)
    await office.at_rest()
    assert len(office.told()) == 2

    answers(scene)
    scene.leap(301)
    await office.until_told(3)
    assert office.told()[2] == ("alert.recovered", "circuit_opened")
    await until(lambda: len(office.mailbox.mails) == 3, "the mail")
    assert office.mailbox.mails[2].subject == "[Doorstep] Recovered: shop: circuit closed"

    await office.at_rest()  # or the leap would end the lease of a message whose result is not written yet
    scene.leap(7_200)
    await asyncio.sleep(1.5)
    await office.at_rest()
    assert len(office.told()) == len(office.mailbox.mails) == len(office.requests("/slack")) == 3
    assert await office.alerts("state=open") == []
    assert sorted(one["rule"] for one in await office.alerts()) == ["circuit_opened", "dead_letter"]


# -- thresholds --------------------------------------------------------------------------------------------


async def _settle(scene: Scene, endpoint: Endpoint, count: int, status: int) -> None:
    """Let `count` deliveries end with this answer. A 400 does not count for the circuit."""
    answers(scene, shop=status)
    deliveries = await scene.send_to(endpoint, count)
    for delivery in deliveries:
        await scene.until_state(delivery, *("delivered",) if status == 200 else ("dead",))  # type: ignore[arg-type]


async def test_the_alarm_of_dead_letters_fires_at_the_fifty_first_and_not_one_before(
    scene: Scene, office: Office
) -> None:
    endpoint = await shop(scene)
    await _settle(scene, endpoint, 50, 400)
    await office.at_rest()
    assert office.told("dead_letters") == []
    assert await office.alerts("rule=dead_letters") == []
    await _settle(scene, endpoint, 1, 400)
    await office.until_told(1, "dead_letters")
    (alert,) = await office.alerts("rule=dead_letters")
    assert (alert["value"], alert["threshold"], alert["title"]) == (51.0, 50.0, "51 dead letters")
    assert alert["link"] == f"{CONSOLE}/console/dead-letters"
    assert office.told("dead_letter") == [("alert.fired", "dead_letter")]  # 51 letters, one cause
    (letters,) = await office.alerts("rule=dead_letter")
    assert letters["count"] == 51


async def test_the_alarm_of_dead_letters_is_over_at_four_fifths_and_not_one_before(
    scene: Scene, office: Office, api: Api
) -> None:
    await api.post("/v1/alert-rules", {"rule": "dead_letters", "threshold": 5})
    endpoint = await shop(scene)
    await _settle(scene, endpoint, 6, 400)
    await office.until_told(1, "dead_letters")
    letters = [one["delivery_id"] for one in await api.all("/v1/dead-letters", "dead_letters")]
    assert (await api.post(f"/v1/dead-letters/{letters[0]}/resolve")).status == 200
    scene.leap(10)
    await asyncio.sleep(1.5)
    assert (await office.alerts("rule=dead_letters"))[0]["state"] == "open"
    assert (await api.post(f"/v1/dead-letters/{letters[1]}/resolve")).status == 200
    scene.leap(10)
    await office.until_told(2, "dead_letters")
    assert office.told("dead_letters")[1] == ("alert.recovered", "dead_letters")


async def test_the_alarm_of_the_failure_rate_fires_at_more_than_five_percent_and_not_one_before(
    scene: Scene, office: Office
) -> None:
    endpoint = await shop(scene)
    await _settle(scene, endpoint, 95, 200)
    await _settle(scene, endpoint, 5, 400)
    await office.at_rest()
    assert await office.alerts("rule=failure_rate") == []
    await _settle(scene, endpoint, 1, 400)
    await office.until_told(1, "failure_rate")
    (alert,) = await office.alerts("rule=failure_rate")
    assert alert["value"] == pytest.approx(100 * 6 / 101)
    assert (alert["threshold"], alert["endpoint_id"]) == (5.0, str(endpoint.endpoint_id))
    scene.leap(1_000)  # everything is now older than the window
    await office.until_told(2, "failure_rate")
    assert office.told("failure_rate")[1] == ("alert.recovered", "failure_rate")


async def test_nineteen_deliveries_are_too_few_for_a_rate_and_the_twentieth_is_enough_even_if_it_succeeds(
    scene: Scene, office: Office
) -> None:
    endpoint = await shop(scene)
    await _settle(scene, endpoint, 19, 400)
    await office.at_rest()
    assert await office.alerts("rule=failure_rate") == []
    await _settle(scene, endpoint, 1, 200)
    scene.leap(10)
    await office.until_told(1, "failure_rate")
    assert (await office.alerts("rule=failure_rate"))[0]["value"] == 95.0


async def test_a_threshold_of_one_endpoint_is_its_own(scene: Scene, office: Office, api: Api) -> None:
    loud = await scene.endpoint("/loud", name="loud")
    quiet = await scene.endpoint("/quiet", name="quiet")
    for body in (
        {"rule": "dead_letters", "endpoint_id": str(loud.endpoint_id), "threshold": 1},
        {"rule": "dead_letter", "endpoint_id": str(quiet.endpoint_id), "enabled": False},
    ):
        assert (await api.post("/v1/alert-rules", body)).status == 200
    answers(scene, loud=400, quiet=400)
    for endpoint in (loud, quiet):
        for delivery in await scene.send_to(endpoint, 2):
            await scene.until_state(delivery, "dead")  # type: ignore[arg-type]
    await office.until_told(2)
    await office.at_rest()
    assert sorted(one["title"] for one in await office.alerts()) == [
        "loud: 2 dead letters",
        "loud: a delivery failed permanently",
    ]


async def test_a_delivery_that_is_due_for_too_long_is_told_and_told_again_when_it_is_gone(
    scene: Scene, office: Office, api: Api
) -> None:
    await api.post("/v1/alert-rules", {"rule": "oldest_due", "threshold": 60})
    endpoint = await scene.endpoint(handler="nobody", name="nobody")
    (delivery,) = await scene.send_to(endpoint)
    scene.leap(30)
    await asyncio.sleep(1.5)
    assert await office.alerts("rule=oldest_due") == []
    scene.leap(35)
    await office.until_told(1, "oldest_due")
    scene.doorstep.register("nobody", lambda _: None)
    await scene.until_state(delivery, "delivered")  # type: ignore[arg-type]
    scene.leap(10)
    await office.until_told(2, "oldest_due")
    assert office.told("oldest_due") == [("alert.fired", "oldest_due"), ("alert.recovered", "oldest_due")]


async def test_a_disabled_endpoint_is_told_with_its_reason_and_told_again_when_it_is_enabled(
    scene: Scene, office: Office, api: Api
) -> None:
    endpoint = await shop(scene)
    answers(scene, shop=410)
    await scene.send()
    await office.until_told(1, "endpoint_disabled")
    (alert,) = await office.alerts("rule=endpoint_disabled")
    assert "asked not to be called again" in alert["error_reason"]
    assert (await api.post(f"/v1/endpoints/{endpoint.endpoint_id}/resume", {})).status == 200
    await office.until_told(2, "endpoint_disabled")


# -- notified once -----------------------------------------------------------------------------------------


async def test_other_causes_are_told_by_themselves_and_after_the_cooldown_the_same_is_told_again(
    scene: Scene, office: Office
) -> None:
    endpoint = await shop(scene)
    await _settle(scene, endpoint, 3, 400)
    await _settle(scene, endpoint, 3, 404)
    await office.until_told(2, "dead_letter")
    await office.at_rest()
    assert len(office.told("dead_letter")) == 2
    scene.leap(3_601)
    await _settle(scene, endpoint, 2, 404)
    await office.until_told(3, "dead_letter")
    await office.at_rest()
    assert len(office.told("dead_letter")) == 3
    assert sorted(one["count"] for one in await office.alerts("rule=dead_letter")) == [2, 3, 3]


async def test_what_comes_and_goes_within_the_cooldown_is_told_once(scene: Scene, office: Office) -> None:
    endpoint = await shop(scene, circuit=CircuitRules(failures_max=1, open_seconds=1), policy=[5, 5, 5, 5])
    for _ in range(3):
        answers(scene, shop=503)
        (delivery,) = await scene.send_to(endpoint)
        await scene.until_tried(delivery)
        answers(scene)
        scene.leap(6)
        await scene.until_state(delivery, "delivered")  # type: ignore[arg-type]
    await office.at_rest()
    assert office.told("circuit_opened") == [("alert.fired", "circuit_opened"), ("alert.recovered", "circuit_opened")]
    (alert,) = await office.alerts("rule=circuit_opened")
    assert (alert["count"], alert["state"]) == (3, "recovered")


async def test_what_is_still_on_when_the_cooldown_ends_is_told_then_as_what_it_is_now(
    scene: Scene, office: Office, api: Api
) -> None:
    endpoint = await shop(
        scene, circuit=CircuitRules(failures_max=1, probe_seconds_min=60, open_seconds=60), policy=[5, 5, 5, 5]
    )
    answers(scene, shop=503)
    (delivery,) = await scene.send_to(endpoint)
    await office.until_told(1)
    alert_id = office.news[0]["data"]["alert_id"]
    assert (await api.post(f"/v1/alerts/{alert_id}/acknowledge")).status == 200
    answers(scene)
    scene.leap(61)
    await scene.until_state(delivery, "delivered")  # type: ignore[arg-type]
    await office.until_told(2)
    answers(scene, shop=503)
    await scene.send_to(endpoint)
    await until(lambda: _open_circuits(office), "an open alert")
    (back,) = await office.alerts("rule=circuit_opened&state=open")
    assert (back["alert_id"], back["acknowledged_at"]) == (alert_id, None), "nobody has seen to it yet"
    assert len(office.told()) == 2
    scene.leap(3_700)
    await office.until_told(3)
    assert office.told()[2] == ("alert.fired", "circuit_opened")
    assert office.news[2]["data"]["opened_at"] > office.news[1]["data"]["ended_at"]


async def _open_circuits(office: Office) -> bool:
    return bool(await office.alerts("rule=circuit_opened&state=open"))


async def test_several_workers_tell_once(scene: Scene, office: Office) -> None:
    for _ in range(2):
        await scene.open(smtp_url=office.mailbox.url, public_url=CONSOLE)
    endpoint = await shop(scene, circuit=NEVER_OPENS)
    await _settle(scene, endpoint, 30, 400)
    await office.at_rest()
    await office.until_told(2)
    await office.at_rest()
    await until(lambda: len(office.mailbox.mails) >= 2, "both mails")
    assert sorted(office.told()) == [("alert.fired", "dead_letter"), ("alert.fired", "failure_rate")]
    assert len(office.mailbox.mails) == 2


# -- silences, acknowledging, channels ---------------------------------------------------------------------


async def test_in_a_silence_alerts_are_listed_and_told_to_nobody_and_what_is_still_on_afterwards_is_told_then(
    scene: Scene, office: Office, api: Api
) -> None:
    endpoint = await shop(
        scene, circuit=CircuitRules(failures_max=1, probe_seconds_min=86_400, open_seconds=86_400), policy=[5]
    )
    dying = await scene.endpoint("/dying", name="dying", event_types=("order.*",), circuit=NEVER_OPENS)
    until_at = to_datetime(scene.clock.now()) + timedelta(minutes=30)
    answer = await api.post("/v1/silences", {"until_at": until_at.isoformat(), "reason": "planned work"})
    assert answer.status == 201, answer.body
    answers(scene, shop=503, dying=400)
    for one in (endpoint, dying):
        await scene.send_to(one)
    await until(lambda: _open_circuits(office), "an alert")
    await office.at_rest()
    assert office.told() == []
    scene.leap(1_801)
    await office.until_told(2)
    assert sorted(office.told()) == [("alert.fired", "circuit_opened"), ("alert.fired", "dead_letter")]


async def test_a_silence_that_is_ended_by_hand_is_over_at_once(scene: Scene, office: Office, api: Api) -> None:
    endpoint = await shop(scene)
    until_at = to_datetime(scene.clock.now()) + timedelta(hours=1)
    body = {"until_at": until_at.isoformat(), "endpoint_id": str(endpoint.endpoint_id), "rule": "dead_letter"}
    silence = (await api.post("/v1/silences", body)).json
    await _settle(scene, endpoint, 1, 400)
    await office.at_rest()
    assert office.told() == []
    assert (await api.delete(f"/v1/silences/{silence['silence_id']}")).status == 204
    await office.until_told(1)
    await _settle(scene, endpoint, 1, 404)
    await office.until_told(2)


async def test_an_alert_is_acknowledged_once_by_whoever_was_first(scene: Scene, office: Office, api: Api) -> None:
    await _settle(scene, await shop(scene), 1, 400)
    await office.until_told(1)
    (alert,) = await office.alerts()
    for _ in range(2):
        answer = await api.post(f"/v1/alerts/{alert['alert_id']}/acknowledge", {"reason": "on it"})
        assert answer.status == 200
        (mine,) = [one["name"] for one in await api.all("/v1/keys", "keys") if api.key.startswith(one["prefix"])]
        assert answer.json["acknowledged_by"] == mine
    audit = await api.all("/v1/audit?action=alert.acknowledge", "audit")
    assert len(audit) == 1


async def test_the_test_button_sends_to_its_channel_alone_and_shows_what_came_of_it(
    scene: Scene, office: Office, api: Api
) -> None:
    channels = {one["kind"]: one for one in (await api.get("/v1/channels")).json["channels"]}
    answer = await api.post(f"/v1/channels/{channels['email']['channel_id']}/test")
    assert answer.status == 202, answer.body
    await until(lambda: len(office.mailbox.mails) == 1, "a mail")
    assert office.mailbox.mails[0].subject == "[Doorstep] Test message"
    assert office.news == []
    office.mailbox.answer = lambda: "550 we do not know you"
    scene.leap(5)
    await api.post(f"/v1/channels/{channels['email']['channel_id']}/test")

    async def shown() -> bool:
        channel = (await api.get(f"/v1/channels/{channels['email']['channel_id']}")).json
        return channel["last_error"] == "REJECTED: The mail server answered 550: we do not know you"

    await until(shown, "the error on the channel")
    assert await office.alerts() == []  # messages that fail cause no further messages


async def test_a_message_is_retried_until_its_receiver_is_back(scene: Scene, office: Office) -> None:
    statuses = {"/alerts": iter([500, 503])}
    scene.receiver.answer = lambda request: Answer(
        400 if request.path == "/shop" else next(statuses.get(request.path, iter(())), 200)
    )
    endpoint = await shop(scene)
    await scene.send_to(endpoint)

    async def arrived() -> bool:
        scene.leap(5)
        await asyncio.sleep(0.2)  # a busy machine must start a claim before half of its lease has passed
        return len(office.requests("/alerts")) == 3

    await until(arrived, "the third attempt")
    assert len({one.event_id for one in office.requests("/alerts")}) == 1


async def test_a_channel_is_told_only_what_it_wants(scene: Scene, office: Office, api: Api) -> None:
    wanted = await office.channel("webhook", scene.receiver.url("/wanted"), rules=["failure_rate"])
    assert (wanted["rules"], wanted["state"]) == (["failure_rate"], "active")
    await _settle(scene, await shop(scene), 1, 400)
    await office.until_told(1)
    await office.at_rest()
    assert office.requests("/wanted") == []
    assert (await api.delete(f"/v1/channels/{wanted['channel_id']}")).status == 204
    assert len((await api.get("/v1/channels")).json["channels"]) == 3


async def test_where_a_channel_goes_is_shown_without_what_lets_others_in(
    scene: Scene, office: Office, api: Api
) -> None:
    secret_path = scene.receiver.url("/services/T0/B0/canary")
    await office.channel("slack", secret_path)
    answer = await api.get("/v1/channels")
    assert b"canary" not in answer.body and b"whsec" not in answer.body
    assert "http://127.0.0.1/…" in [one["target"] for one in answer.json["channels"]]


async def test_the_reserved_organization_is_in_no_list(scene: Scene, office: Office, api: Api) -> None:
    assert [one["name"] for one in await api.all("/v1/orgs", "orgs")] == ["default"]
    assert await api.all("/v1/endpoints", "endpoints") == []
    assert await api.all("/v1/events", "events") == []


# -- operational events ------------------------------------------------------------------------------------


async def test_operational_events_reach_endpoints_that_ask_for_them_by_name_or_prefix_and_nobody_else(
    scene: Scene, office: Office
) -> None:
    await scene.endpoint("/everything", name="everything", event_types=("*",))
    await scene.endpoint("/named", name="named", event_types=("delivery.dead", "alert.fired"))
    await scene.endpoint("/prefix", name="prefix", event_types=("circuit.*",))
    endpoint = await shop(scene, circuit=CircuitRules(failures_max=1, probe_seconds_min=300), policy=[])
    answers(scene, shop=503)
    (delivery,) = await scene.send_to(endpoint)
    await until(lambda: len(office.requests("/named")) >= 3 and office.requests("/prefix"), "events")
    await office.at_rest()
    named = sorted((json.loads(one.body) for one in office.requests("/named")), key=lambda one: one["type"])
    assert [one["type"] for one in named] == ["alert.fired", "alert.fired", "delivery.dead"]
    assert named[2]["data"]["delivery_id"] == str(delivery.delivery_id)
    assert named[2]["data"]["error_code"] == "SERVICE_UNAVAILABLE"
    (opened,) = [json.loads(one.body) for one in office.requests("/prefix")]
    assert (opened["type"], opened["data"]["endpoint_id"]) == ("circuit.opened", str(endpoint.endpoint_id))
    assert office.requests("/everything") == []


async def test_an_operational_event_that_dies_causes_none_but_is_told(scene: Scene, office: Office) -> None:
    broken = await scene.endpoint("/broken", name="broken", event_types=("delivery.dead",), policy=[])
    endpoint = await shop(scene)
    answers(scene, shop=400, broken=400)
    await scene.send_to(endpoint)
    await office.until_told(2, "dead_letter")
    await office.at_rest()
    assert len(office.requests("/broken")) == 1
    by_endpoint = {one["data"]["endpoint_id"]: one["data"] for one in office.news}
    assert by_endpoint[str(broken.endpoint_id)]["event_type"] == "delivery.dead"


async def test_where_nobody_asks_for_operational_events_none_is_made(scene: Scene, office: Office, api: Api) -> None:
    await _settle(scene, await shop(scene), 2, 400)
    await office.until_told(1)
    assert {one["event_type"] for one in await api.all("/v1/events", "events")} == {"order.paid"}


# -- refused requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/alert-rules", {"rule": "failure_rate"}, "body"),
        ("/v1/alert-rules", {"rule": "failure_rate", "threshold": 101}, "threshold"),
        ("/v1/alert-rules", {"rule": "failure_rate", "window_seconds": 5}, "window_seconds"),
        ("/v1/alert-rules", {"rule": "failure_rate", "minimum": 0}, "minimum"),
        ("/v1/alert-rules", {"rule": "oldest_due", "threshold": 1}, "threshold"),
        ("/v1/alert-rules", {"rule": "dead_letters", "minimum": 5}, "minimum"),
        ("/v1/alert-rules", {"rule": "dead_letter", "threshold": 5}, "threshold"),
        ("/v1/alert-rules", {"rule": "dead_letter", "cooldown_seconds": 59}, "cooldown_seconds"),
        ("/v1/alert-rules", {"rule": "nonsense", "enabled": True}, "rule"),
        ("/v1/alert-rules", {"rule": "dead_letter", "enabled": True, "endpoint_id": str(NOBODY)}, "endpoint_id"),
        ("/v1/silences", {}, "until_at"),
        ("/v1/silences", {"until_at": "2020-01-01T00:00:00Z"}, "until_at"),
        ("/v1/silences", {"from_at": "2019-01-01T00:00:00Z", "until_at": "2020-01-01T00:00:00Z"}, "until_at"),
        ("/v1/silences", {"until_at": "2999-01-01T00:00:00Z"}, "until_at"),
        ("/v1/channels", {"name": "", "kind": "webhook", "target": "https://ops.example/"}, "name"),
        ("/v1/channels", {"name": "a", "kind": "pigeon", "target": "https://ops.example/"}, "kind"),
        ("/v1/channels", {"name": "a", "kind": "webhook", "target": "ftp://ops.example/"}, "target"),
        ("/v1/channels", {"name": "a", "kind": "webhook", "target": "https://10.0.0.1/"}, "target"),
        ("/v1/channels", {"name": "a", "kind": "email", "target": "nobody"}, "target"),
        ("/v1/channels", {"name": "a", "kind": "email", "target": "a@b.example\r\nBcc: c@d.example"}, "target"),
        ("/v1/channels", {"name": "a", "kind": "apprise", "target": "no-url"}, "target"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_name_of_its_field(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await api.post(path, body)
    assert answer.status == 422, answer.body
    assert answer.json["errors"][0]["field"] == field


async def test_a_rule_that_was_changed_is_shown_and_can_be_put_back(scene: Scene, api: Api) -> None:
    before = (await api.get("/v1/alert-rules")).json["alert_rules"]
    assert [one["rule"] for one in before if one["alert_rule_id"] is None] == [
        "dead_letter", "failure_rate", "dead_letters", "circuit_opened", "endpoint_disabled", "oldest_due",
    ]  # fmt: skip
    changed = (await api.post("/v1/alert-rules", {"rule": "failure_rate", "threshold": 2.5})).json
    assert (changed["threshold"], changed["window_seconds"], changed["minimum"]) == (2.5, 900.0, 20)
    again = (await api.post("/v1/alert-rules", {"rule": "failure_rate", "minimum": 5})).json
    assert (again["alert_rule_id"], again["threshold"], again["minimum"]) == (changed["alert_rule_id"], 2.5, 5)
    assert changed["alert_rule_id"] in (await api.get("/v1/alert-rules")).body.decode()
    assert (await api.delete(f"/v1/alert-rules/{changed['alert_rule_id']}")).status == 204
    assert (await api.get("/v1/alert-rules")).json["alert_rules"] == before
