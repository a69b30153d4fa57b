"""Writes the code of docs/how-to/handlers.md into a program and runs it: every handler on the page is declared and
called."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import HOW_TO, fences
from tests.integration.embedding import run, states, write

PAGE = HOW_TO / "handlers.md"
CARRIER = """
class carrier:
    @staticmethod
    def submit(order):
        class answer:
            busy, refused = order == "busy", order == "refused"
            code, text = "30007", "their words"
        return answer
"""
MAIN = """
import asyncio
from doorstep.bootstrap import DEFAULT_ORG

async def main():
    async with ds:
        sent = [await ds.send("sms.batch", order) for order in ("good", "refused")]
        sent.append(await ds.send("pdf.convert", {}))
        async with asyncio.timeout(120):
            for receipt in sent:
                while (await ds.event(DEFAULT_ORG, receipt.event_id)).status not in ("delivered", "failed"):
                    await asyncio.sleep(0.02)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_handlers_of_the_page_can_be_declared_with_the_default_settings_and_work(tmp_path: Path) -> None:
    blocks = fences(PAGE, "python")
    assert len(blocks) == 3
    write(tmp_path, "shop", "\n".join([CARRIER, *blocks, MAIN]))
    said = run(tmp_path, "shop.py")
    assert sorted(states(tmp_path)) == ["dead", "delivered", "delivered"]
    assert said == "sms.batch submit BATCH_REJECTED The carrier refuses this batch. 1\n"
