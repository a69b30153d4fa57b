"""Text chosen by others mentions nobody, hides no link and forges none of our lines, whichever chat shows it."""

from __future__ import annotations

import html
import re
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from doorstep.clock import SECOND
from doorstep.model.alert import Alert, ChannelKind, Rule
from doorstep.policy.alert_messages import channel_test_message, message_about, payload_for
from doorstep.policy.alerts import News
from tests.support.matrix import each_case

CONSOLE = "https://doorstep.example"
ALERT = Alert(
    alert_id=UUID(int=1),
    org_id=UUID(int=9),
    rule=Rule.DEAD_LETTER,
    opened_at=SECOND,
    seen_at=SECOND,
    told_at=SECOND,
    endpoint_id=UUID(int=2),
    endpoint_name="shop",
    code="REJECTED",
    reason="no",
    event_id=UUID(int=3),
    event_type="order.paid",
)
HOSTILE = [
    "@all", "@channel", "@here", "@everyone", "hello@everyone", "<!channel>", "<!here>", "<!everyone|hi>",
    "<!subteam^S123>", "<@U123>", "<@!123>", "<@&123>", "<#C123>", "<https://evil.example|click>",
    "[click](https://evil.example)", "![x](https://evil.example/x.png)", "[click][1]", "[1]: https://evil.example",
    "<a href='https://evil.example'>click</a>", "```", "`@all`", "name\n@channel", "name\r\n\r\nhttps://evil.example",
    "name\u2028[1]: https://evil.example", "&lt;!channel&gt;", "\u202egnitset", "a\x00b\x1b[31m",
]  # fmt: skip
ACTS = [
    re.compile(r"@(all|channel|here|everyone)\b"),  # Mattermost, Discord, Rocket.Chat
    re.compile(r"<[@#!][^>]*>"),  # Slack, Discord
    re.compile(r"<https?://[^|>]*\|[^>]*>|<a\s"),  # a link that hides its target: Slack, HTML
    re.compile(r"\]\(|\]\["),  # the same in Markdown, and Markdown images
    re.compile(r"^\s*\[[^\]]*\]:", re.MULTILINE),  # a link target defined on a line of its own
    re.compile(r"```"),  # everything after it would be shown as code
]


def texts(means: ChannelKind, **fields: Any) -> list[str]:
    """Each text of a message, both unchanged and with HTML entities decoded."""
    alert = replace(ALERT, **fields)
    words = [message_about(alert, news, CONSOLE) for news in (News.FIRED, News.RECOVERED)]
    words.append(channel_test_message(str(fields.get("endpoint_name", "ops")), SECOND, CONSOLE))
    shapes = [msgspec.json.decode(payload_for(means, one)) for one in words]
    said = [text for shape in shapes for name, text in shape.items() if name != "type"]
    return [*said, *map(html.unescape, said)]


@each_case("field", ["endpoint_name", "reason"])
@each_case("means", [ChannelKind.SLACK, ChannelKind.APPRISE])
@each_case("hostile", HOSTILE, ids=ascii)
def test_a_name_or_an_error_does_not_act_in_a_chat(hostile: str, means: ChannelKind, field: str) -> None:
    for text in texts(means, **{field: f"{hostile} {hostile}"}):
        assert [pattern.pattern for pattern in ACTS if pattern.search(text)] == []


@each_case("hostile", HOSTILE, ids=ascii)
def test_the_control_as_it_is_it_would_act_somewhere(hostile: str) -> None:
    """Each sample has an active pattern, possibly behind HTML entities, or contains unprintable characters."""
    acts = any(pattern.search(html.unescape(hostile)) for pattern in ACTS)
    assert acts or not hostile.isprintable()


@each_case("means", [ChannelKind.SLACK, ChannelKind.APPRISE, ChannelKind.EMAIL])
@each_case("hostile", HOSTILE, ids=ascii)
def test_a_name_or_an_error_writes_no_lines_of_ours(hostile: str, means: ChannelKind) -> None:
    plain = [text.count("\n") for text in texts(means)]
    assert [text.count("\n") for text in texts(means, endpoint_name=hostile, reason=hostile)] == plain
    assert not any(set("\r\x00\x1b\u2028\u202e") & set(text) for text in texts(means, reason=hostile))


@each_case("means", [ChannelKind.SLACK, ChannelKind.APPRISE, ChannelKind.EMAIL])
def test_our_own_link_stays_a_link(means: ChannelKind) -> None:
    assert any(f"{CONSOLE}/console/events/{UUID(int=3)}" in text for text in texts(means, reason="<@x>`"))


def test_what_is_for_programs_says_exactly_what_was_said() -> None:
    words = message_about(replace(ALERT, reason="@all [x](y)"), News.FIRED, CONSOLE)
    told = msgspec.json.decode(payload_for(ChannelKind.WEBHOOK, words))
    assert told["data"]["error_reason"] == "@all [x](y)"
