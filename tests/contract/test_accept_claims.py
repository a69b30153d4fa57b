"""R5.1, R5.3: a delivery that is claimed in the transaction that accepts it is claimed like any other."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.clock import SECOND, Instant
from doorstep.errors import StaleRouting
from doorstep.model.claim import Claim, Lease
from doorstep.model.delivery import DeliveryState
from doorstep.model.endpoint import RAMP, Circuit, CircuitState
from doorstep.model.event import EventStatus, EventView, Submission, Verdict
from doorstep.model.listing import DeliveryHistory
from tests.contract.scene import LEASE, Scene
from tests.support.builders import a_submission
from tests.support.shortcuts import routing_versions, totals


def lease_of(scene: Scene, worker: str = "w1") -> Lease:
    return Lease(scene.now + LEASE, worker)


def claimable(scene: Scene, **fields: Any) -> Submission:
    given = {"due_at": scene.now, "created_at": scene.now, "claimable": True} | fields
    return a_submission(scene.org_id, [scene.endpoint.endpoint_id], **given)


async def accept_claimed(scene: Scene, **fields: Any) -> Claim:
    (receipt,) = await scene.submit(claimable(scene, **fields), lease=lease_of(scene))
    (claim,) = receipt.claims
    return claim


async def everything_about(scene: Scene, claim: Claim) -> list[object]:
    """What people can see of a delivery and its event, without ids."""
    delivery = await scene.delivery(claim.delivery_id)
    history = await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=claim.delivery_id))
    event = await scene.store.get(EventView, scene.org_id, claim.event_id)
    ids = {"delivery_id": None, "event_id": None}
    return [
        {**{name: getattr(delivery, name) for name in delivery.__struct_fields__}, **ids},
        [(entry.at, entry.old_state, entry.new_state, entry.attempt, entry.note) for entry in history],
        (event.status, event.deliveries, event.retry_attempts),
    ]


async def test_a_claim_made_while_accepting_equals_one_made_afterwards(scene: Scene) -> None:
    fields: dict[str, Any] = {
        "payload": b"\x00\xff",
        "expires_at": scene.now + 99,
        "retries_max": 2,
        "metadata": b'{"a":1}',
    }
    at_once = await accept_claimed(scene, **fields)
    await scene.submit(claimable(scene, **fields))
    later = await scene.claim_one()
    ids = {"key": None, "event_key": None, "delivery_id": None, "event_id": None}
    assert at_once._replace(**ids) == later._replace(**ids)
    assert await everything_about(scene, at_once) == await everything_about(scene, later)


@pytest.mark.parametrize("end", ["deliver", "fail", "kill", "release"])
async def test_it_ends_like_any_other_claim(scene: Scene, end: str) -> None:
    claims = [await accept_claimed(scene)]
    await scene.submit(claimable(scene))
    claims.append(await scene.claim_one())
    for claim in claims:
        if end == "release":
            assert await scene.store.release([claim], scene.now) == [claim]
        else:
            assert (await getattr(scene, end)(claim)).late == ()
    assert await everything_about(scene, claims[0]) == await everything_about(scene, claims[1])
    assert (await scene.deliver(claims[0])).late == (claims[0],), "it can be settled only once"


async def test_the_attempt_is_counted_and_nobody_else_can_claim_it_before_its_lease_ends(scene: Scene) -> None:
    claim = await accept_claimed(scene)
    assert await scene.claim() == []
    delivery = await scene.delivery(claim.delivery_id)
    assert (delivery.state, delivery.attempt, delivery.due_at) == (DeliveryState.IN_PROGRESS, 1, scene.now + LEASE)
    assert await scene.store.expired(scene.now + LEASE - 1, 10) == []
    (lost,) = await scene.store.expired(scene.now + LEASE, 10)
    assert (lost.token, lost.attempt, lost.worker) == (claim.token, 1, "w1")
    await scene.fail(lost)
    assert (await scene.deliver(claim)).late == (claim,), "its first holder comes too late"


async def test_the_event_is_queued_and_the_figures_say_so(scene: Scene) -> None:
    await accept_claimed(scene)
    figures = await totals(scene.store, scene.org_id)
    assert (figures.created, figures.deliveries, figures.now_received, figures.now_queued) == (1, 1, 0, 1)


async def test_only_deliveries_marked_by_a_caller_with_a_lease_are_claimed(scene: Scene) -> None:
    unmarked, no_lease = claimable(scene, claimable=False), claimable(scene)
    (first,) = await scene.submit(unmarked, lease=lease_of(scene))
    (second,) = await scene.submit(no_lease)
    assert (first.claims, second.claims) == ((), ())
    assert len(await scene.claim()) == 2


async def test_of_several_deliveries_one_picks_up_the_event(scene: Scene) -> None:
    other = await scene.add_endpoint()
    targets = [scene.endpoint.endpoint_id, other.endpoint_id]
    made = [a_submission(scene.org_id, targets, due_at=scene.now, claimable=True) for _ in range(2)]
    for receipt, submission in zip(await scene.submit(*made, lease=lease_of(scene)), made, strict=True):
        assert [claim.delivery_id for claim in receipt.claims] == [one.delivery_id for one in submission.deliveries]
        assert [claim.picked_up for claim in receipt.claims] == [True, False]


async def test_deliveries_with_an_ordering_key_are_left_to_wait_for_their_turn(scene: Scene) -> None:
    (receipt,) = await scene.submit(claimable(scene, ordering_key="a"), lease=lease_of(scene))
    assert receipt.claims == ()
    assert len(await scene.claim()) == 1


@pytest.mark.parametrize(
    ("state", "failures", "age", "claims"),
    [
        (CircuitState.OPEN, 3, RAMP, 0),
        (CircuitState.HALF_OPEN, 3, RAMP, 0),
        (CircuitState.CLOSED, 1, RAMP, 0),
        (CircuitState.CLOSED, 0, RAMP - 1, 0),
        (CircuitState.CLOSED, 0, RAMP, 1),
    ],
)
async def test_an_endpoint_in_doubt_is_left_to_the_claimer(
    scene: Scene, state: CircuitState, failures: int, age: Instant, claims: int
) -> None:
    changed_at = scene.now - age
    circuit = Circuit(endpoint_id=scene.endpoint.endpoint_id, state=state, failures=failures, changed_at=changed_at)
    assert await scene.store.put_circuit(circuit, 0)
    (receipt,) = await scene.submit(claimable(scene), lease=lease_of(scene))
    assert len(receipt.claims) == claims
    event = await scene.store.get(EventView, scene.org_id, receipt.event_id)
    assert event.status is (EventStatus.QUEUED if claims else EventStatus.RECEIVED)


async def test_a_repeated_call_claims_nothing_again(scene: Scene) -> None:
    submission = claimable(scene)
    (first,) = await scene.submit(submission, lease=lease_of(scene))
    (again,) = await scene.submit(submission, lease=lease_of(scene, "w2"))
    assert (len(first.claims), again.known, again.claims) == (1, True, ())
    assert (await scene.delivery(first.claims[0].delivery_id)).worker == "w1"


async def test_a_repeated_idempotency_key_claims_nothing_again(scene: Scene) -> None:
    made = [claimable(scene, key="k") for _ in range(3)]
    receipts = [
        *await scene.submit(*made[:2], lease=lease_of(scene)),
        *await scene.submit(made[2], lease=lease_of(scene)),
    ]
    assert [receipt.verdict for receipt in receipts] == [Verdict.ACCEPTED, Verdict.REPEATED, Verdict.REPEATED]
    assert [len(receipt.claims) for receipt in receipts] == [1, 0, 0]


async def test_a_change_of_the_endpoint_since_the_routing_was_read_claims_nothing(scene: Scene) -> None:
    version = await routing_versions(scene.store)
    await scene.change_endpoint(name="changed")
    with pytest.raises(StaleRouting):
        await scene.store.accept([claimable(scene)], version, scene.now, lease_of(scene))
    assert await scene.store.due_lanes(scene.now) == []
    assert await scene.store.expired(scene.now + 999 * SECOND, 10) == []


async def test_marked_and_unmarked_deliveries_of_many_events_can_be_mixed(scene: Scene) -> None:
    made = [claimable(scene, claimable=bool(number % 3)) for number in range(300)]
    receipts = await scene.submit(*made, lease=lease_of(scene))
    claims = [claim for receipt in receipts for claim in receipt.claims]
    assert [claim.event_id for claim in claims] == [one.event.event_id for n, one in enumerate(made) if n % 3]
    rest = await scene.claim(1_000)
    assert {claim.event_id for claim in rest} == {one.event.event_id for n, one in enumerate(made) if not n % 3}
    assert (await scene.deliver(*claims, *rest)).late == ()
    states = {(await scene.delivery(one.deliveries[0].delivery_id)).state for one in made}
    assert states == {DeliveryState.DELIVERED}
