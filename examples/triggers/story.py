"""A story on a simulated clock: `python -m examples.triggers.story`."""

from __future__ import annotations

from uuid import UUID

from doorstep.testing import ok, scripted, status
from examples.theatre import Theatre, play
from examples.triggers.endpoints import automation
from examples.triggers.program import create


async def story(stage: Theatre) -> None:
    await fetched_from_the_inbox(stage)
    await stage.api.endpoints.create(**automation(stage.receiver.url("/automation")))
    await called_until_it_works(stage)
    await failed_and_retried_by_hand(stage)


async def fetched_from_the_inbox(stage: Theatre) -> None:
    """No endpoint takes forms, so a program fetches them from the inbox."""
    stage.tell("A website sends form.submitted. No endpoint subscribes to it, so it goes to the inbox.")
    receipt = await stage.api.send("form.submitted", {"name": "Ada"})
    (waiting,) = await stage.api.inbox.page()
    stage.tell(f"A program reads the inbox, finds {waiting.event_type} {waiting.payload}, and acknowledges it.")
    await stage.api.inbox.acknowledge(waiting.event_id)
    await _poll(stage, receipt.event_id)


async def called_until_it_works(stage: Theatre) -> None:
    """Every failure is retried, until success or the last retry."""
    stage.receiver.behaves(scripted([404, 503, 200]))
    stage.tell("The website sends lead.created. The automation is being edited and returns 404.")
    receipt = await stage.api.send("lead.created", {"lead": 1})
    await stage.pass_time()
    await _poll(stage, receipt.event_id)
    await stage.pass_time(60)
    stage.tell("One minute later Doorstep retries. The automation returns 503.")
    await _poll(stage, receipt.event_id)
    await stage.pass_time(300)
    stage.tell("Five minutes later the automation accepts the lead.")
    await _poll(stage, receipt.event_id)
    (delivery,) = (await stage.api.events.read(receipt.event_id)).deliveries
    stage.tell(f"  The delivery says: {delivery.remark}.")


async def failed_and_retried_by_hand(stage: Theatre) -> None:
    """After four failed attempts in total, the event waits for an operator."""
    stage.receiver.behaves(status(500))
    stage.tell("The website sends another lead. This time the automation stays broken.")
    receipt = await stage.api.send("lead.created", {"lead": 2})
    await stage.pass_time(3_600)
    await _poll(stage, receipt.event_id)
    (failed,) = await stage.api.inbox.page(status="failed")
    (delivery,) = (await stage.api.events.read(failed.event_id)).deliveries
    stage.tell(f"The list of failed events shows {failed.event_type}, failed after {delivery.attempts} attempts:")
    for attempt in await stage.api.deliveries.attempts(delivery.delivery_id):
        stage.tell(f"  attempt {attempt.number} at {attempt.started_at:%H:%M:%S}: {attempt.error_reason}")
    stage.receiver.behaves(ok)
    stage.tell("An operator fixes the automation and retries the event manually.")
    await stage.api.events.retry(failed.event_id, reason="the automation is repaired")
    await stage.pass_time(5)
    stage.tell("Five seconds later it is delivered.")
    await _poll(stage, receipt.event_id)


async def _poll(stage: Theatre, event_id: UUID) -> None:
    seen = await stage.api.events.status(event_id)
    retry = f", next retry at {seen.next_retry_at:%H:%M:%S}" if seen.next_retry_at else ""
    stage.tell(f"  Its status: {seen.status}, retries used: {seen.retry_attempts}{retry}.")


if __name__ == "__main__":
    play(story, create=create)
