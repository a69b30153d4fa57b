"""A story on a simulated clock: `python -m examples.integrations.story`."""

from __future__ import annotations

from functools import partial

from doorstep.testing import ok, status
from examples.integrations.endpoints import ErpError, Integrations, crm
from examples.integrations.other_sides import ScriptedErp, ScriptedPartner
from examples.integrations.program import create
from examples.theatre import Theatre, play

INVOICE = {"number": "R-7", "amount": 120, "buyer": "ACME"}


class Story:
    def __init__(self) -> None:
        self.partner = ScriptedPartner()
        self.erp = ScriptedErp()
        self.integrations = Integrations(self.partner, self.erp)

    async def __call__(self, stage: Theatre) -> None:
        await stage.api.endpoints.create(**crm(stage.receiver.url("/crm")))
        await self.everything_is_well(stage)
        await self.seen_in_the_retry_queue(stage)
        await self.repaired_and_retried(stage)
        await self.settled_by_a_person(stage)

    async def everything_is_well(self, stage: Theatre) -> None:
        await stage.api.send("customer.changed", {"customer": 1})
        await stage.api.send("invoice.issued", INVOICE)
        await stage.api.send("stock.counted", {"article": "A-1", "count": 5})
        await stage.pass_time()
        stage.tell("A customer goes to the CRM by webhook, an invoice to the partner by EDI, a stock count to the ERP.")
        stage.tell(f"  The partner received {self.partner.messages[0]}")

    async def seen_in_the_retry_queue(self, stage: Theatre) -> None:
        stage.receiver.behaves(status(503))
        self.partner.busy_for = 2
        await stage.api.send("customer.changed", {"customer": 2})
        await stage.pass_time(1)
        await stage.api.send("invoice.issued", INVOICE)
        await stage.pass_time()
        stage.tell("The CRM is down and the partner's line is busy. The retry queue, next retry first:")
        await show_retry_queue(stage)
        await stage.pass_time(10)
        stage.tell("Ten seconds later the partner has received the invoice. The CRM is still down:")
        await show_retry_queue(stage)
        stage.receiver.behaves(ok)
        (waiting,) = await stage.api.retry_queue.page()
        await stage.api.retry_queue.retry(waiting.delivery_id, reason="the CRM is back")
        await stage.pass_time()
        stage.tell(
            f"An operator learns that the CRM is back and retries. Deliveries waiting now: {await waiting_count(stage)}."
        )

    async def repaired_and_retried(self, stage: Theatre) -> None:
        await stage.api.send("invoice.issued", {"number": "R-8", "amount": 80})
        await stage.pass_time()
        stage.tell("An invoice has no buyer. A retry would not help, so it becomes a dead letter immediately:")
        await show_dead_letters(stage)
        (letter,) = await stage.api.dead_letters.page()
        repaired = {"number": "R-8", "amount": 80, "buyer": "ACME"}
        await stage.api.dead_letters.edit_and_retry(letter.delivery_id, repaired, reason="added the buyer")
        await stage.pass_time(5)
        stage.tell("An operator adds the buyer and retries. Five seconds later the partner receives it:")
        stage.tell(f"  {self.partner.messages[-1]}")

    async def settled_by_a_person(self, stage: Theatre) -> None:
        self.erp.error = ErpError("M7-021", "Deficit of stock unrestricted")
        await stage.api.send("stock.counted", {"article": "A-2", "count": -1})
        await stage.pass_time(86_400)
        stage.tell("The ERP rejects a stock count. Its policy is manual, so a day later there was no retry:")
        await show_dead_letters(stage)
        (letter,) = await stage.api.dead_letters.page()
        await stage.api.dead_letters.resolve(letter.delivery_id, reason="posted by hand")
        stage.tell("An operator posts it manually and marks the dead letter as resolved.")
        left = len(await stage.api.dead_letters.page())
        stage.tell(f"  Dead letters: {left}. The audit log, newest first:")
        for line in await stage.api.audit.page(limit=3):
            stage.tell(f"  {line.action}: {line.reason}")


async def show_retry_queue(stage: Theatre) -> None:
    for one in await stage.api.retry_queue.page():
        stage.tell(
            f"  {one.endpoint_name}: {one.event_type}, {one.error}, retries {one.retry_count}, "
            f"next at {one.next_retry_at:%H:%M:%S}"
        )


async def show_dead_letters(stage: Theatre) -> None:
    for one in await stage.api.dead_letters.page():
        stage.tell(f"  {one.endpoint_name}: {one.event_type}, {one.error}, {one.error_reason}")


async def waiting_count(stage: Theatre) -> int:
    return len(await stage.api.retry_queue.page())


if __name__ == "__main__":
    story = Story()
    play(story, create=partial(create, story.integrations))
