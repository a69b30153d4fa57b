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
import asyncio, logging

logging.disable()

async def main():
    async with ds:
        sent = [await ds.send("sms.batch", order) for order in ("good", "refused")]
        sent.append(await ds.send("pdf.convert", {}))
        sent.append(await ds.send("order.paid", Order(number=1, item="tea")))
        sent.append(await ds.send("order.paid", {"item": "tea"}))
        async with asyncio.timeout(120):
            for receipt in sent:
                while (await ds.event(receipt.event_id)).status not in ("delivered", "failed"):
                    await asyncio.sleep(0.02)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_handlers_of_the_page_can_be_declared_with_the_default_settings_and_work(tmp_path: Path) -> None:
    blocks = fences(PAGE, "python")
    assert len(blocks) == 4
    write(tmp_path, "shop", "\n".join([CARRIER, *blocks, MAIN]))
    said = run(tmp_path, "shop.py")
    assert sorted(states(tmp_path)) == ["dead", "dead", "delivered", "delivered", "delivered"]
    assert sorted(said.splitlines()) == [
        "order.paid ship INVALID_FORMAT The payload does not match Order: number: field required. 1",
        "sms.batch submit BATCH_REJECTED The carrier refuses this batch. 1",
    ]
