"""Payloads as JSON, in the library and in the client: numbers that JSON does not have are refused, as over HTTP."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from doorstep import payloads
from doorstep.client import call
from doorstep.client.events import Sending


class Model(BaseModel):
    price: float
    note: str | None = None


class Struct(msgspec.Struct):
    price: float


@dataclass
class Line:
    prices: list[float]


WRITERS = [payloads.json_of, call.json_of]
_each_writer = pytest.mark.parametrize("json_of", WRITERS, ids=["library", "client"])


@_each_writer
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused_wherever_it_is(
    json_of: Callable[[object], object], number: float
) -> None:
    wrong: list[Any] = [
        number,
        {"a": [{"b": number}], "c": None},
        (1, number),
        {1.5, number},
        Struct(number),
        Line([1, number]),
        Model(price=number),
    ]
    for one in wrong:
        with pytest.raises(ValueError, match="NaN or an infinity, which JSON does not have"):
            json_of(one)


def test_metadata_is_checked_like_a_payload() -> None:
    with pytest.raises(ValueError, match="NaN or an infinity"):
        Sending.send.described(None, "order.paid", 1, metadata={"weight": math.nan})


def test_a_model_inside_another_payload_is_checked_too() -> None:
    with pytest.raises(ValueError, match="NaN or an infinity"):
        payloads.json_of({"order": [Model(price=math.nan)]})


@_each_writer
def test_everything_else_is_written(json_of: Callable[[object], Any]) -> None:
    deep: list[Any] = [None]
    for _ in range(200):
        deep = [deep]
    for value, written in (
        ({"a": None, "b": 1e308, "c": "null"}, b'{"a":null,"b":1e308,"c":"null"}'),
        (Model(price=1.5), b'{"price":1.5,"note":null}'),
        ([None, Decimal("1.5"), b"x"], b'[null,"1.5","eA=="]'),
        (deep, b"[" * 201 + b"null" + b"]" * 201),
    ):
        assert bytes(json_of(value)) == written
