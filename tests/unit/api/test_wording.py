"""The same mistake is told in the same words, whichever parser found it."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest
from pydantic import Field, ValidationError

from doorstep.api.endpoint_schemas import EndpointIn
from doorstep.api.schemas import Shape
from doorstep.api.wording import FieldError, from_msgspec, from_pydantic
from tests.support.matrix import each_case


class HotShape(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    number: int = 1
    size: float = 1.0
    sure: bool = False
    some: tuple[str, ...] = ()
    id: UUID = UUID(int=0)


class UsualShape(Shape):
    text: str
    number: int = 1
    size: float = 1.0
    sure: bool = False
    some: list[str] = Field([])
    id: UUID = UUID(int=0)


WRONG: tuple[tuple[Any, str, str], ...] = (
    ({}, "text", "is required"),
    ({"text": "a", "other": 1}, "other", "is not known here; remove it"),
    ({"text": 1}, "text", "must be a string, got a whole number"),
    ({"text": None}, "text", "must be a string, got null"),
    ({"text": "a", "number": "1"}, "number", "must be a whole number, got a string"),
    ({"text": "a", "number": 1.5}, "number", "must be a whole number, got a number"),
    ({"text": "a", "size": []}, "size", "must be a number, got a list"),
    ({"text": "a", "sure": 1}, "sure", "must be true or false, got a whole number"),
    ({"text": "a", "some": {}}, "some", "must be a list, got an object"),
    ({"text": "a", "some": ["a", 1]}, "some[1]", "must be a string, got a whole number"),
    ([], "body", "must be an object, got a list"),
)


def found_by_msgspec(shape: type[Any], given: object) -> FieldError:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(given), type=shape)
    return from_msgspec(str(caught.value))


def found_by_pydantic(shape: type[Shape], given: object) -> list[FieldError]:
    with pytest.raises(ValidationError) as caught:
        shape.model_validate(given)
    return [from_pydantic({**finding, "loc": ("body", *finding["loc"])}) for finding in caught.value.errors()]


@each_case(("given", "field", "message"), WRONG)
def test_both_parsers_are_given_the_same_words(given: object, field: str, message: str) -> None:
    assert found_by_msgspec(HotShape, given) == FieldError(field, message)
    assert found_by_pydantic(UsualShape, given) == [FieldError(field, message)]


class Bounded(Shape):
    limit: int = Field(1, ge=1, le=200)
    text: str = Field("a", min_length=1, max_length=3)
    some: list[int] = Field([1], min_length=1, max_length=2)
    state: Literal["active", "paused"] = "active"
    all: Literal[True] | None = None


@each_case(
    ("given", "message"),
    [
        ({"limit": 0}, "must be at least 1"),
        ({"limit": 201}, "must be at most 200"),
        ({"text": ""}, "must have at least 1 characters"),
        ({"text": "four"}, "must have at most 3 characters"),
        ({"some": []}, "must have at least 1 items"),
        ({"some": [1, 2, 3]}, "must have at most 2 items"),
        ({"state": "gone"}, "must be one of active, paused"),
        ({"all": False}, "must be true"),
    ],
)
def test_a_bound_that_is_broken_is_named(given: dict[str, Any], message: str) -> None:
    (field,) = given
    assert found_by_pydantic(Bounded, given) == [FieldError(field, message)]


@each_case(
    ("sentence", "expected"),
    [
        ("Expected `int` <= 1000 - at `$.limit`", FieldError("limit", "must be at most 1000")),
        ("Expected `str` of length <= 500 - at `$.cursor`", FieldError("cursor", "must have at most 500 characters")),
        ("Number out of range - at `$[...]`", FieldError("body", "number out of range")),
        ("Invalid UUID - at `$.endpoint_ids[0]`", FieldError("endpoint_ids[0]", "must be a UUID")),
        (
            "Invalid RFC3339 encoded datetime - at `$.deliver_at`",
            FieldError("deliver_at", "must be a time such as 2026-01-31T12:00:00Z"),
        ),
    ],
)
def test_what_msgspec_says_of_bounds_ids_and_times_is_put_into_our_words(sentence: str, expected: FieldError) -> None:
    assert from_msgspec(sentence) == expected


@each_case(
    ("policy", "field", "message"),
    [
        (5, "policy", "must be the name of a policy, a list of delays in seconds, or an object"),
        (["a"], "policy[0]", "must be a number, got a string"),
        ({}, "policy.delays", "is required"),
        ({"delays": "a"}, "policy.delays", "must be a list, got a string"),
    ],
)
def test_a_policy_is_judged_only_by_the_form_it_was_given_in(policy: object, field: str, message: str) -> None:
    given = {"name": "shop", "url": "https://shop.example", "policy": policy}
    assert found_by_pydantic(EndpointIn, given) == [FieldError(field, message)]
