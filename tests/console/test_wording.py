"""The labels and sentences of the console that a program replaces with its own."""

from __future__ import annotations

import re

import pytest

from doorstep import Doorstep
from doorstep.errors import ConfigError
from doorstep.policy.wording import CONSOLE_WORDING
from tests.console.queueing import QUEUE, failing
from tests.console.visiting import Console
from tests.docs.pages import HOW_TO
from tests.support.scene import Scene, until


async def test_a_program_words_the_retry_queue_and_the_outcome_of_a_retry(scene: Scene, console: Console) -> None:
    (delivery,) = await failing(scene, 1)
    assert "Try again" not in (await console.get(QUEUE)).text, "the console's own wording"
    scene.doorstep.server.console_wording(retry_now="Try again", retry_count="Tries", retry_succeeded="It worked.")
    shown = await console.get(QUEUE)
    assert "Try again" in shown.text and "Tries" in shown.text and "Retry now" not in shown.text
    scene.receiver.says(200)
    await console.post(f"{QUEUE}/{delivery.delivery_id}/retry", back=QUEUE)
    watch = f"/console/outcome?delivery={delivery.delivery_id}&after=1&of=queue"

    async def known() -> bool:
        return (await console.get(watch)).said == "It worked."

    await until(known, "the outcome")


def test_an_unknown_name_or_placeholder_is_refused() -> None:
    doorstep = Doorstep("memory://")
    with pytest.raises(ConfigError, match="no text 'skipp' to replace; there are event_type, "):
        doorstep.server.console_wording(skipp="Skip it")
    with pytest.raises(ConfigError, match="bulk_retry_finished may have"):
        doorstep.server.console_wording(deleted="{count} deleted")
    with pytest.raises(ConfigError, match="'bulk_retry_running' has placeholders"):
        doorstep.server.console_wording(bulk_retry_running="{done} of {total}")
    doorstep.server.console_wording(bulk_retry_running="{succeeded} of {total}")


def test_the_page_lists_each_name_with_the_text_of_the_console() -> None:
    section = (HOW_TO / "own-routes.md").read_text().partition("## Wording of the console")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)) == dict(CONSOLE_WORDING)
