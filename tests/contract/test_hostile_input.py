"""Promise 6: bytes are returned unchanged, and all stores treat text that some store cannot keep in the same way."""

from __future__ import annotations

import random

import pytest

from doorstep.errors import InvalidInput
from doorstep.model.attempt import Category, Failure, Outcome
from doorstep.model.claim import Settlement
from doorstep.model.delivery import DeliveryState
from doorstep.model.event import EventView
from doorstep.model.listing import DeliveryAttempts
from tests.contract.places import Place
from tests.contract.scene import Scene
from tests.support.builders import a_reply, a_submission

PAYLOADS = {
    "empty": b"",
    "NUL": b'"\x00"',
    "every byte": bytes(range(256)),
    "a lone surrogate, escaped": b'"\\ud800"',
    "a lone surrogate, encoded": b'"\xed\xa0\x80"',
    "four bytes of UTF-8": "🚚 𝔘𝔫𝔦𝔠𝔬𝔡𝔢".encode(),
    "broken UTF-8": b"\xff\xfe\xc3\x28",
    "a number longer than any float": b"1" * 5_000,
    "nested deeply": b"[" * 10_000 + b"]" * 10_000,
    "1 MiB": random.Random(1).randbytes(2**20),
}
TEXTS = {
    "four bytes of UTF-8": "🚚 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "right to left": "\u202eדלת",
    "combining": "e\u0301",
    "noncharacter": "\uffff",
    "control characters": "\x01\x1f\x7f\r\n\t",
    "SQL": "'); DROP TABLE events; --",
    "percent, question mark, colon, dollar": "%s ? :name $1 {}",
    "long": "x" * 2_000,
}
UNSTORABLE = {"NUL": "a\x00b", "a lone surrogate": "a\ud800b", "a pair of surrogates": "\ud83d\ude9a"}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
async def test_a_payload_comes_back_byte_for_byte_from_the_claim_and_from_the_event(
    scene: Scene, payload: bytes
) -> None:
    (submission,) = await scene.accept(payload=payload, metadata=payload)
    view = await scene.store.get(EventView, scene.org_id, submission.event.event_id)
    assert (view.event.payload, view.event.metadata) == (payload, payload)
    assert (await scene.claim_one()).payload == payload


@pytest.mark.parametrize("raw", PAYLOADS.values(), ids=PAYLOADS)
async def test_headers_and_bodies_are_logged_byte_for_byte(scene: Scene, place: Place, raw: bytes) -> None:
    if place.name == "dynamodb" and len(raw) > 16 * 1024:
        pytest.skip("an item of DynamoDB has 400 KB, so the beginning of a long text is kept")
    await scene.accept()
    claim = await scene.claim_one()
    reply = a_reply(scene.now, request_headers=raw, headers=raw, body=raw)
    await scene.settle(Settlement.delivered(claim, Outcome(reply=reply)))
    (row,) = await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id))
    assert (row.request_headers, row.response_headers, row.response_body) == (raw, raw, raw)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_strange_text_comes_back_as_it_was_given(scene: Scene, text: str) -> None:
    submission = a_submission(
        scene.org_id, [scene.endpoint.endpoint_id], event_type=text, correlation_id=text, key=text
    )
    await scene.submit(submission)
    event = (await scene.store.get(EventView, scene.org_id, submission.event.event_id)).event
    assert (event.event_type, event.correlation_id) == (text, text)

    claim = await scene.claim_one(worker=text)
    await scene.fail(claim, outcome=_failure(scene, text))
    delivery = await scene.delivery(claim.delivery_id)
    (row,) = await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id))
    assert (delivery.code, delivery.reason) == (text, text)
    assert (row.code, row.reason, row.detail, row.worker) == (text, text, text, text)


@pytest.mark.parametrize("field", ["event_type", "correlation_id", "key"])
@pytest.mark.parametrize("text", UNSTORABLE.values(), ids=UNSTORABLE)
async def test_text_that_not_every_store_can_keep_is_refused_by_all_and_keeps_nothing(
    scene: Scene, field: str, text: str
) -> None:
    bad = a_submission(scene.org_id, [scene.endpoint.endpoint_id], **{field: text})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput) as refusal:
        await scene.submit(a_submission(scene.org_id, [scene.endpoint.endpoint_id]), bad)
    assert refusal.value.field in (field, f"idempotency_{field}")
    assert await scene.counts() == {}


@pytest.mark.parametrize("text", UNSTORABLE.values(), ids=UNSTORABLE)
async def test_a_receivers_unstorable_error_text_does_not_keep_its_result_from_being_written(
    scene: Scene, text: str
) -> None:
    await scene.accept()
    claim = await scene.claim_one()
    await scene.fail(claim, outcome=_failure(scene, text))
    delivery = await scene.delivery(claim.delivery_id)
    (row,) = await scene.store.find(scene.org_id, DeliveryAttempts(delivery_id=claim.delivery_id))
    kept = "".join("\ufffd" if one == "\0" or "\ud800" <= one <= "\udfff" else one for one in text)
    assert delivery.state is DeliveryState.PENDING
    assert (delivery.code, delivery.reason) == (kept, kept)
    assert (row.code, row.reason, row.detail) == (kept, kept, kept)


@pytest.mark.parametrize("instant", [0, 1, 2**53 + 1, 2**62 - 1], ids=["epoch", "just after", "past 2^53", "far"])
async def test_instants_are_exact_to_the_microsecond_however_far_away(scene: Scene, instant: int) -> None:
    (submission,) = await scene.accept(created_at=instant, due_at=instant, deliver_at=instant, expires_at=instant)
    event = (await scene.store.get(EventView, scene.org_id, submission.event.event_id)).event
    delivery = await scene.delivery(submission.deliveries[0].delivery_id)
    assert (event.created_at, event.deliver_at, event.expires_at) == (instant, instant, instant)
    assert (delivery.created_at, delivery.due_at) == (instant, instant)


def _failure(scene: Scene, text: str) -> Outcome:
    """The outcome of a Python handler that raises an error with this text as its message and its code."""
    reply = a_reply(scene.now, status=None, failure=Failure(text, text))
    return Outcome(reply=reply, category=Category.TRANSIENT, code=text, reason=text, detail=text)
