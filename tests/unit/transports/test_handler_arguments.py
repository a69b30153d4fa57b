"""What a handler takes: the event, its payload as the program's own type, or both; checked where it is declared."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypedDict

import msgspec
import pydantic
import pytest

from doorstep.app import Doorstep
from doorstep.config import Settings
from doorstep.errors import ConfigError, Permanent
from doorstep.transports.handler_arguments import called
from doorstep.transports.handler_replies import Received, received
from tests.support.sending import a_claim

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


class Item(pydantic.BaseModel):
    sku: str = pydantic.Field(alias="SKU")


class Order(pydantic.BaseModel):
    number: int
    items: list[Item] = []
    prices: dict[str, int] = {}


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@pydantic.dataclasses.dataclass
class Parcel:
    grams: int


@dataclass
class Plain:
    number: int
    order: Order | None = None


class Row(TypedDict):
    number: int


class Line(msgspec.Struct):
    number: int


class Custom:
    def __init__(self, number: int) -> None: ...


def given(payload: bytes) -> Received:
    return received(a_claim(payload))


EVENT = given(b'{"number": 7}')


def payload_alone(order: Order) -> object:
    return order


def payload_first(order: Order, event: Received) -> object:
    return order, event


def event_first(event: Any, order: Plain) -> object:
    return Order(number=order.number), event


def event_by_keyword(order: Row, *, event: Received) -> object:
    return Order(**order), event


def with_option(line: Line, retries: int = 3) -> object:
    return Order(number=line.number)


def exact_bytes(payload: bytes, event: Received) -> object:
    return payload, event


class Shipping:
    def ship(self, order: Order) -> object:
        return order

    def __call__(self, order: Order) -> object:
        return order


@functools.wraps(payload_first)
def wrapped(*args: Any, **options: Any) -> object:
    return payload_first(*args, **options)


def test_a_parameter_takes_the_event_or_the_payload_as_its_annotation_says() -> None:
    order = Order(number=7)
    for function in (payload_alone, Shipping().ship, Shipping(), with_option, functools.partial(payload_alone)):
        assert called(function, EVENT) == order
    for function in (payload_first, event_first, event_by_keyword, wrapped):
        assert called(function, EVENT) == (order, EVENT)
    assert called(exact_bytes, EVENT) == (b'{"number": 7}', EVENT)
    for function in (lambda event: event, lambda event=None: event, lambda *all: all[0]):
        assert called(function, EVENT) is EVENT


def test_models_lists_unions_and_aliases_are_understood_as_pydantic_and_fastapi_do() -> None:
    assert given(b'[{"SKU": "tea"}]').json(list[Item]) == [Item(SKU="tea")]
    assert given(b'{"kind": "dog"}').json(Pet) == Dog(kind="dog")
    assert given(b'{"grams": 3}').json(Parcel) == Parcel(3)
    assert given(b"null").json(Order | None) is None
    assert given(b'{"number": 1, "order": {"number": 2}}').json(Plain) == Plain(1, Order(number=2))


def test_a_payload_that_does_not_match_is_described_without_quoting_it() -> None:
    cases: list[tuple[Any, bytes, str]] = [
        (Order, b'{"number": "canary"}', "Order: number: input should be a valid integer, unable to parse string"),
        (Order, b'{"number": 1, "items": [{}]}', "Order: items[0].SKU: field required."),
        (Order, b'{"number": 1, "prices": {"canary": "x"}}', "Order: prices[...]: input should be a valid integer"),
        (Order | Item, b"{}", "The payload does not match Order | Item: Order.number: field required; Item.SKU: "),
        (list[Order], b"{}", "The payload does not match list[Order]: input should be a valid array."),
        (Pet, b'{"kind": "canary"}', "The payload does not match Cat | Dog: "),
        (Pet, b'{"kind": "canary"}', "kind' does not match any of the expected tags: 'cat', 'dog'."),
        (Plain, b'{"number": 1, "order": {"number": "canary"}}', "Plain: order: number: input should be"),
        (Row, b'{"number": "canary"}', "Row: number: expected `int`, got `str`."),
        (Line, b"[]", "Line: expected `object`, got `array`."),
        (list[Line], b'[{"number": null}]', "[0].number: expected `int`, got `null`."),
    ]
    for kind, payload, sentence in cases:
        with pytest.raises(Permanent) as raised:
            given(payload).json(kind)
        assert raised.value.code == "INVALID_FORMAT" and raised.value.message.startswith("The payload does not match ")
        assert sentence in raised.value.message and "canary" not in raised.value.message


def test_a_type_that_nothing_can_be_decoded_into_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="no payload can be decoded into Custom; use a pydantic model"):
        EVENT.json(Custom)


def nothing() -> NoReturn: ...
def two_events(one: Received, two: Any) -> NoReturn: ...
def two_payloads(one: Order, two: Line) -> NoReturn: ...
def three(one: Order, two: Received, three: int) -> NoReturn: ...
def custom(order: Custom) -> NoReturn: ...
def nested_custom(orders: list[Custom]) -> NoReturn: ...
def for_type_checkers(price: OnlyForTypeCheckers) -> NoReturn: ...
def undefined(order: Ordre) -> NoReturn: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (nothing, r"must take the event, or the payload as an annotated parameter such as `order: Order`.* got \(\)"),
        (two_events, "or one of each, got "),
        (two_payloads, "or one of each, got "),
        (three, "or one of each, got "),
        (custom, "'order' of a type that it cannot have: no payload can be decoded into Custom; use a pydantic model"),
        (nested_custom, "no payload can be decoded into Custom"),
        (for_type_checkers, "'OnlyForTypeCheckers' cannot be read .* not only for type checkers"),
        (undefined, "whose annotation 'Ordre' cannot be read .name 'Ordre' is not defined"),
    ],
)
def test_a_signature_that_could_not_be_called_is_refused_where_the_handler_is_declared(
    function: Any, complaint: str
) -> None:
    doorstep = Doorstep(Settings(database_url="memory://"))
    with pytest.raises(ConfigError, match=complaint):
        doorstep.handler("order.paid", name="ship")(function)
    with pytest.raises(ConfigError, match=complaint):
        doorstep.register("ship", function)
