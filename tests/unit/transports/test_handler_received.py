"""The object that a handler receives: its fields, and how its payload is decoded."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec
import pytest

from doorstep.errors import Permanent
from doorstep.model.attempt import Code
from doorstep.transports.handler_replies import Received, received
from tests.support.sending import a_claim


class Currency(enum.Enum):
    EUR = "eur"


@dataclass
class Order:
    number: int
    currency: Currency = Currency.EUR


class Line(msgspec.Struct):
    product: str


def given(payload: bytes, metadata: bytes = b"{}") -> Received:
    return received(a_claim(payload, metadata=metadata))


def test_it_says_all_there_is_to_know_about_the_delivery() -> None:
    claim = a_claim(b"[1]", metadata=b'{"tenant": {"id": 7}}')
    seen = received(claim)
    assert (seen.endpoint_id, seen.org_id, seen.delivery_id) == (claim.endpoint_id, claim.org_id, claim.delivery_id)
    assert (seen.attempt, seen.retry_attempts, seen.retries_max) == (2, 1, 3)
    assert seen.metadata == {"tenant": {"id": 7}} and seen.json() == [1]


def test_the_payload_can_be_decoded_into_a_type() -> None:
    assert given(b'{"number": 7, "more": 1}').json(Order) == Order(7)
    assert given(b'[{"product": "tea"}]').json(list[Line]) == [Line("tea")]


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b'{"number": "canary"}', "The payload does not match Order: number: expected `int`, got `str`."),
        (b"{}", "The payload does not match Order: object missing required field `number`."),
        (b'{"number": 1, "currency": "canary"}', "The payload does not match Order: currency: invalid enum value."),
        (b'{"number": 1, "currency": "a - at `b`"}', "The payload does not match Order: currency: invalid enum value."),
    ],
)
def test_a_payload_that_does_not_fit_is_given_up_on_with_a_reason_that_does_not_quote_it(
    payload: bytes, sentence: str
) -> None:
    with pytest.raises(Permanent) as raised:
        given(payload).json(Order)
    assert raised.value.code == Code.INVALID_FORMAT
    assert raised.value.message == sentence
