"""The wording of alerts: in each channel's format, with the error and a link, and with no markup from a receiver."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.model.alert import Alert, ChannelKind, Ending, Rule
from doorstep.policy.alert_messages import channel_test_message, link_to, message_about, payload_for, title_of
from doorstep.policy.alerts import News
from tests.support.matrix import each_case

CONSOLE = "https://doorstep.example"
SHOP, EVENT = UUID(int=2), UUID(int=3)
LETTER = Alert(
    alert_id=UUID(int=1),
    org_id=UUID(int=9),
    rule=Rule.DEAD_LETTER,
    opened_at=SECOND,
    seen_at=SECOND,
    told_at=SECOND,
    endpoint_id=SHOP,
    endpoint_name="shop",
    code="TIMEOUT",
    reason="It took too long.",
    event_id=EVENT,
    event_type="order.paid",
)


def shaped(means: ChannelKind, alert: Alert = LETTER, news: News = News.FIRED) -> Any:
    return msgspec.json.decode(payload_for(means, message_about(alert, news, CONSOLE)))


def test_a_message_has_the_error_the_event_and_a_link() -> None:
    assert shaped(ChannelKind.EMAIL) == {
        "subject": "[Doorstep] shop: a delivery failed permanently",
        "text": f"Error: TIMEOUT It took too long.\nEvent: order.paid {EVENT}\n{CONSOLE}/console/events/{EVENT}",
    }
    assert shaped(ChannelKind.APPRISE)["type"] == "failure"
    assert shaped(ChannelKind.WEBHOOK)["data"]["error_reason"] == "It took too long."


@each_case(
    ("rule", "value", "threshold", "said"),
    [
        (Rule.FAILURE_RATE, 0.03, 0.02, "Measured 0.1%, threshold 0.02%."),
        (Rule.FAILURE_RATE, 100 / 3, 33.3333, "Measured 33.3%, threshold 33.3333%."),
        (Rule.FAILURE_RATE, 100.0, 99.99, "Measured 100%, threshold 99.99%."),
        (Rule.DEAD_LETTERS, 51.0, 50.0, "Measured 51, threshold 50."),
        (Rule.OLDEST_DUE, 61.26, 60.25, "Measured 61.3, threshold 60.25."),
    ],
)
def test_a_threshold_is_told_as_it_was_set_and_what_was_measured_in_brief(
    rule: Rule, value: float, threshold: float, said: str
) -> None:
    alert = replace(LETTER, rule=rule, value=value, threshold=threshold)
    assert said in shaped(ChannelKind.EMAIL, alert)["text"].splitlines()


def test_a_recovery_says_how_long_it_lasted() -> None:
    over = replace(LETTER, rule=Rule.CIRCUIT_OPENED, ended_at=61 * SECOND)
    mail = shaped(ChannelKind.EMAIL, over, News.RECOVERED)
    assert mail["subject"] == "[Doorstep] Recovered: shop: circuit closed"
    assert "lasted 60 s" in mail["text"]
    assert shaped(ChannelKind.APPRISE, over, News.RECOVERED)["type"] == "success"
    assert shaped(ChannelKind.WEBHOOK, over, News.RECOVERED)["type"] == "alert.recovered"


@each_case(
    ("why", "said"),
    [
        (Ending.ENDPOINT_DELETED, "The endpoint was deleted."),
        (Ending.ENDPOINT_PAUSED, "The endpoint was paused."),
        (Ending.RULE_CHANGED, "The rule was turned off or reset."),
    ],
)
def test_what_ends_without_working_again_is_not_called_a_recovery(why: Ending, said: str) -> None:
    over = replace(LETTER, rule=Rule.CIRCUIT_OPENED, ended_at=61 * SECOND, ended_because=why)
    mail = shaped(ChannelKind.EMAIL, over, News.RECOVERED)
    assert mail["subject"] == "[Doorstep] Ended: shop: circuit opened"
    assert mail["text"].startswith(said)
    assert shaped(ChannelKind.WEBHOOK, over, News.RECOVERED)["data"]["ended_because"] == why


def test_what_a_receiver_chose_does_not_call_everybody_in_slack() -> None:
    hostile = replace(LETTER, reason="<!channel> <https://evil.example|click> & more")
    text = shaped(ChannelKind.SLACK, hostile)["text"]
    assert "<" not in text and ">" not in text
    assert "&lt;\u200b!channel&gt;" in text


@each_case(
    ("rule", "endpoint_id", "value", "title", "page"),
    [
        (Rule.FAILURE_RATE, SHOP, 5.9405, "shop: 5.9% of deliveries fail", f"endpoints/{SHOP}"),
        (Rule.DEAD_LETTERS, None, 51.0, "51 dead letters", "dead-letters"),
        (Rule.DEAD_LETTERS, SHOP, 51.0, "shop: 51 dead letters", f"dead-letters?endpoint_id={SHOP}"),
        (Rule.CIRCUIT_OPENED, SHOP, None, "shop: circuit opened", f"endpoints/{SHOP}"),
        (Rule.ENDPOINT_DISABLED, SHOP, None, "shop: endpoint disabled", f"endpoints/{SHOP}"),
        (Rule.OLDEST_DUE, None, 301.2, "a delivery has been due for 301 s", "retry-queue"),
    ],
)
def test_each_rule_has_a_title_and_a_page_where_one_can_do_something(
    rule: Rule, endpoint_id: UUID | None, value: float | None, title: str, page: str
) -> None:
    name = "" if endpoint_id is None else "shop"
    alert = replace(LETTER, rule=rule, endpoint_id=endpoint_id, endpoint_name=name, value=value)
    assert title_of(alert) == title
    assert link_to(alert, CONSOLE) == f"{CONSOLE}/console/{page}"


def test_a_test_says_that_it_is_one() -> None:
    for means in ChannelKind:
        assert b"test" in payload_for(means, channel_test_message("ops", SECOND, CONSOLE))
