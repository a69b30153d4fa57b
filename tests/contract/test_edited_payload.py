"""R7.4: a dead letter is retried with an edited payload, which is sent byte for byte from then on."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

import pytest

from doorstep.errors import NotFound
from doorstep.model.action import ActionKind
from doorstep.model.claim import Claim
from doorstep.model.delivery import DeliveryPayload, DeliveryState
from doorstep.model.event import EventView
from doorstep.model.listing import AuditFilter, DeliveryHistory
from tests.contract.scene import LEASE, Scene
from tests.support.builders import a_submission, an_org, new_id
from tests.support.shortcuts import put

SHORT, LONG, BINARY = b'{"n": 2}', b'"' + b"x" * 100_000 + b'"', b"\x00\xff\xfe"


async def dead_letter(scene: Scene, payload: bytes = b'{"n": 1}') -> Claim:
    await scene.accept(payload=payload)
    claim = await scene.claim_one()
    await scene.kill(claim)
    return claim


async def edit(scene: Scene, delivery_id: UUID, payload: bytes, **fields: object) -> None:
    result = await scene.act(ActionKind.RETRY, delivery_id, payload=payload, revive_at=scene.now, **fields)
    assert result.done == (delivery_id,)


@pytest.mark.parametrize("before", [SHORT, LONG])
@pytest.mark.parametrize("after", [SHORT, LONG, BINARY, b""])
async def test_the_edited_payload_goes_out_at_every_later_attempt(scene: Scene, before: bytes, after: bytes) -> None:
    claim = await dead_letter(scene, before)
    await edit(scene, claim.delivery_id, after)
    again = await scene.claim_one()
    assert again.payload == after
    await scene.fail(again)
    scene.wait(2 * LEASE)
    assert (await scene.claim_one()).payload == after


@pytest.mark.parametrize("before", [SHORT, LONG])
async def test_the_audit_log_tells_the_sizes_and_hashes_of_both_payloads(scene: Scene, before: bytes) -> None:
    claim = await dead_letter(scene, before)
    for old, new in ((before, BINARY), (BINARY, b"")):
        await edit(scene, claim.delivery_id, new)
        (entry, *_) = (await scene.store.page(scene.org_id, AuditFilter())).items
        sizes, hashes = (len(old), len(new)), (sha256(old).hexdigest(), sha256(new).hexdigest())
        assert entry.result == (
            f"1 done, 0 refused; payload of delivery {claim.delivery_id} edited: "
            f"{sizes[0]} bytes, SHA-256 {hashes[0]} to {sizes[1]} bytes, SHA-256 {hashes[1]}"
        )
        await scene.kill(await scene.claim_one())
        scene.wait(1)


async def test_the_event_keeps_what_was_accepted_and_its_other_deliveries_too(scene: Scene) -> None:
    second = await scene.add_endpoint()
    made = a_submission(scene.org_id, [scene.endpoint.endpoint_id, second.endpoint_id])
    await scene.submit(made)
    mine, theirs = (owed.delivery_id for owed in made.deliveries)
    await scene.kill(await scene.claim_one())
    await edit(scene, mine, SHORT)
    assert (await scene.store.get(EventView, scene.org_id, made.event.event_id)).event.payload == made.event.payload
    assert (await scene.store.get(DeliveryPayload, scene.org_id, mine)).payload == SHORT
    assert (await scene.store.get(DeliveryPayload, scene.org_id, theirs)).payload == made.event.payload
    assert [(await scene.delivery(uid)).edited for uid in (mine, theirs)] == [True, False]


async def test_a_later_retry_without_a_payload_keeps_the_edited_one(scene: Scene) -> None:
    claim = await dead_letter(scene)
    await edit(scene, claim.delivery_id, SHORT)
    await scene.kill(await scene.claim_one())
    await scene.act(ActionKind.RETRY, claim.delivery_id, revive_at=scene.now)
    assert (await scene.claim_one()).payload == SHORT
    assert (await scene.delivery(claim.delivery_id)).edited


async def test_history_and_audit_say_who_edited_it(scene: Scene) -> None:
    claim = await dead_letter(scene)
    await edit(scene, claim.delivery_id, SHORT, actor="key:ab12", reason="wrong currency")
    (line,) = (await scene.store.page(scene.org_id, AuditFilter())).items
    newest = (await scene.store.find(scene.org_id, DeliveryHistory(delivery_id=claim.delivery_id)))[-1]
    assert newest.note == "payload edited by key:ab12, retried: wrong currency"
    assert (line.actor, line.action, line.reason) == ("key:ab12", "retry", "wrong currency")


@pytest.mark.parametrize("state", [state for state in DeliveryState if state not in ("dead", "archived")])
async def test_only_what_the_machine_has_given_up_on_can_be_edited(scene: Scene, state: DeliveryState) -> None:
    delivery_id = await scene.in_state(state)
    before = (await scene.store.get(DeliveryPayload, scene.org_id, delivery_id)).payload
    result = await scene.act(ActionKind.RETRY, delivery_id, payload=SHORT)
    assert result.refused == {delivery_id: state}
    assert (await scene.store.get(DeliveryPayload, scene.org_id, delivery_id)).payload == before


async def test_an_archived_letter_can_be_edited_too(scene: Scene) -> None:
    delivery_id = await scene.in_state(DeliveryState.ARCHIVED)
    await edit(scene, delivery_id, SHORT)
    assert (await scene.claim_one()).payload == SHORT


async def test_the_payload_of_an_unknown_or_foreign_delivery_is_not_found(scene: Scene) -> None:
    claim = await dead_letter(scene)
    other = an_org()
    await put(scene.store, other)
    for org_id, delivery_id in ((scene.org_id, new_id()), (other.org_id, claim.delivery_id)):
        with pytest.raises(NotFound):
            await scene.store.get(DeliveryPayload, org_id, delivery_id)
