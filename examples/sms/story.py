"""A story on a simulated clock: `python -m examples.sms.story`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any
from uuid import UUID

from doorstep import DeadLetter, Doorstep
from examples.counterpart import running
from examples.sms.carrier import BUSY, REJECTED, TOO_MANY, Carrier
from examples.sms.gateway import Gateway
from examples.sms.program import BATCH, create
from examples.theatre import Theatre, play

REMINDERS = {"messages": [{"to": "+15550100", "text": "See you at nine."}, {"to": "+15550101", "text": "And at ten."}]}
MISPRINT = {"messages": [{"to": "555-OOPS", "text": "See you at nine."}]}


class Story:
    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self.gateway = Gateway(f"{carrier.url}/batches")
        self.stage: Theatre | None = None
        self.alerts: list[str] = []

    def create(self, **given: Any) -> Doorstep:
        program = create(self.gateway, **given)
        program.on_dead_letter(self.alert)
        return program

    def alert(self, letter: DeadLetter) -> None:
        """Record the alert as a line of the story. In production, this function would call a pager."""
        if letter.event_type != BATCH:
            return
        line = f"ALERT: a batch failed permanently at attempt {letter.attempts}: {letter.code}. {letter.reason}"
        self.alerts.append(line)
        if self.stage is not None:
            self.stage.tell(line)

    async def __call__(self, stage: Theatre) -> None:
        self.stage = stage
        await self.confirmed(stage)
        await self.confirmed_in_the_end(stage)
        await self.hopeless(stage)
        failed = await self.given_up(stage)
        await self.resubmitted_by_api(stage, failed)
        await self.resubmitted_by_command(stage)

    async def confirmed(self, stage: Theatre) -> None:
        batch = await stage.doorstep.batches.submit(BATCH, REMINDERS)
        stage.tell(f"A batch of two messages is submitted. It is {batch.status}.")
        await stage.pass_time()
        await self.show(batch.batch_id)

    async def confirmed_in_the_end(self, stage: Theatre) -> None:
        self.carrier.script = [BUSY, TOO_MANY]
        batch = await stage.doorstep.batches.submit(BATCH, REMINDERS)
        await stage.pass_time()
        stage.tell("Another batch is submitted while the carrier's lines are busy.")
        await self.show(batch.batch_id)
        await stage.pass_time(600)
        stage.tell("Five minutes later the carrier asks to retry after two minutes. Then it accepts the batch.")
        await self.show(batch.batch_id)

    async def hopeless(self, stage: Theatre) -> None:
        stage.tell("A batch contains an invalid phone number. A retry would not help.")
        batch = await stage.doorstep.batches.submit(BATCH, MISPRINT)
        await stage.pass_time()
        await self.show(batch.batch_id)

    async def given_up(self, stage: Theatre) -> UUID:
        self.carrier.script = [BUSY] * 4
        stage.tell("The carrier has an outage. Four submissions, 300, 600 and 1200 seconds apart, fail.")
        batch = await stage.doorstep.batches.submit(BATCH, REMINDERS)
        await stage.pass_time(3_600)
        await self.show(batch.batch_id)
        return batch.batch_id

    async def resubmitted_by_api(self, stage: Theatre, batch_id: UUID) -> None:
        failed = await stage.api.batches.page(status="FAILED")
        stage.tell(f"An operator lists the FAILED batches over the API, finds {len(failed)}, and resubmits the newest.")
        again = await stage.api.batches.resubmit(batch_id, reason="the carrier is back")
        stage.tell(f"  It is {again.status} again, with {again.retry_attempts} of {again.retries_max} retries used.")
        await stage.pass_time()
        stage.tell("It is submitted immediately.")
        await self.show(batch_id)

    async def resubmitted_by_command(self, stage: Theatre) -> None:
        self.carrier.script = [REJECTED]
        stage.tell("The carrier rejects a batch by mistake.")
        batch = await stage.doorstep.batches.submit(BATCH, REMINDERS)
        await stage.pass_time()
        stage.tell("An operator resubmits it in a terminal, with `doorstep batches resubmit`.")
        await run_doorstep(stage, "batches", "resubmit", str(batch.batch_id), "--reason", "their mistake")
        await stage.pass_time()
        await self.show(batch.batch_id)
        stage.tell("The audit log lists the resubmissions, newest first:")
        for line in await stage.api.audit.page(action="batch.resubmit"):
            stage.tell(f"  {line.action}, {line.result}: {line.reason}")

    async def show(self, batch_id: UUID) -> None:
        """Print the status and the carrier log."""
        assert self.stage is not None
        self.stage.tell(f"  It is {(await self.stage.api.batches.read(batch_id)).status}. The carrier log:")
        for one in await self.stage.api.batches.attempts(batch_id):
            again = f", again at {one.next_retry_at:%H:%M:%S}" if one.next_retry_at else ""
            code = one.error_code or "ok"
            self.stage.tell(f"  attempt {one.number} at {one.at:%H:%M:%S}: {code}{again}, {one.carrier_response}")


async def run_doorstep(stage: Theatre, *words: str) -> str:
    """Run a `doorstep` command as an operator would; returns its output."""
    where = {"DOORSTEP_URL": stage.url, "DOORSTEP_API_KEY": stage.doorstep.generated_admin_key or ""}
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "doorstep", *words, env=os.environ | where, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await command.communicate()
    assert command.returncode == 0, printed
    return printed.decode()


if __name__ == "__main__":
    with running(Carrier) as its_carrier:
        story = Story(its_carrier)
        play(story, create=story.create)
