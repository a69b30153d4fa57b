"""A story on a simulated clock: `python -m examples.webhooks.story`."""

from __future__ import annotations

from uuid import UUID

from doorstep.client import NotFound
from doorstep.testing import ok, status
from examples.theatre import Theatre, play
from examples.webhooks.endpoints import subscription
from examples.webhooks.program import create


async def story(stage: Theatre) -> None:
    billing = await subscribed(stage)
    first = await signed_and_sent(stage)
    await tried_four_times(stage)
    await left_alone_while_it_is_down(stage, billing)
    await forgotten_after_a_week(stage, first)


async def subscribed(stage: Theatre) -> UUID:
    """Each subscription has its own secret, which is shown once."""
    billing = await stage.api.endpoints.create(**subscription("billing", stage.receiver.url("/billing"), "order.*"))
    depot = await stage.api.endpoints.create(**subscription("depot", stage.receiver.url("/depot"), "order.shipped"))
    stage.receiver.verifies(billing.secret, depot.secret)
    stage.tell("Billing subscribes to order.*, the depot to order.shipped. Both verify signatures.")
    return billing.endpoint_id


async def signed_and_sent(stage: Theatre) -> UUID:
    receipts = [await stage.api.send(event_type, {"order": 1}) for event_type in ("order.paid", "order.shipped")]
    await stage.pass_time()
    stage.tell("order.paid and order.shipped are sent. The receivers got:")
    for path in sorted(f"{request.path} {request.flaw or 'signature ok'}" for request in stage.receiver.requests):
        stage.tell(f"  {path}")
    return receipts[0].event_id


async def tried_four_times(stage: Theatre) -> None:
    stage.receiver.behaves(status(503), at="/billing")
    receipt = await stage.api.send("order.paid", {"order": 2})
    await stage.pass_time(1_260)
    stage.tell("Billing now returns 503. After four attempts order.paid is a dead letter:")
    (letter,) = await stage.api.dead_letters.page()
    for attempt in await stage.api.deliveries.attempts(letter.delivery_id):
        stage.tell(f"  attempt {attempt.number} at {attempt.started_at:%H:%M:%S}: {attempt.response_code}")
    assert letter.event_id == receipt.event_id


async def left_alone_while_it_is_down(stage: Theatre, billing: UUID) -> None:
    receipt = await stage.api.send("order.paid", {"order": 3})
    await stage.pass_time()
    circuit = await stage.api.endpoints.circuit(billing)
    stage.tell(f"The next order fails too: {circuit.failures} failures in a row. The circuit is {circuit.state}.")
    (delivery,) = (await stage.api.events.read(receipt.event_id)).deliveries
    stage.tell(f"  Its delivery says: {delivery.held and delivery.held.reason}")
    before = len(stage.receiver.requests)
    await stage.pass_time(299)
    stage.tell(f"For five minutes billing gets {len(stage.receiver.requests) - before} requests.")
    stage.receiver.behaves(ok, at="/billing")
    await stage.pass_time(1)
    circuit = await stage.api.endpoints.circuit(billing)
    seen = await stage.api.events.status(receipt.event_id)
    stage.tell(
        f"Then Doorstep sends one probe, which succeeds: order.paid is {seen.status}, the circuit {circuit.state}."
    )
    for change in circuit.history:
        stage.tell(f"  {change.at:%H:%M:%S} {change.old_state} to {change.new_state}: {change.reason}")


async def forgotten_after_a_week(stage: Theatre, first: UUID) -> None:
    await stage.pass_time(7 * 86_400)
    try:
        await stage.api.events.status(first)
    except NotFound:
        stage.tell("Deliveries that succeeded a week ago have been removed.")
    letters = [await stage.api.dead_letters.page(status=status) for status in ("dead", "archived")]
    stage.tell(f"So have those that failed: {sum(map(len, letters))} of them are left.")


if __name__ == "__main__":
    play(story, create=create)
