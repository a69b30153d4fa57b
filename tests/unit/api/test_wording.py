"""Errors in a request are described in our own words, not in the parser's."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from doorstep.schemas.endpoints import POLICY_NAMES, EndpointIn
from doorstep.schemas.shape import FieldProblem
from doorstep.schemas.wording import from_msgspec
from tests.support.matrix import each_case


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    number: int = 1
    size: float | None = 1.0
    sure: bool = False
    some: tuple[str, ...] = ()
    id: UUID = UUID(int=0)


WRONG: tuple[tuple[Any, str, str], ...] = (
    ({}, "text", "is required"),
    ({"text": "a", "other": 1}, "other", "is unknown; remove it"),
    ({"text": 1}, "text", "must be a string, got a whole number"),
    ({"text": None}, "text", "must be a string, got null"),
    ({"text": "a", "number": "1"}, "number", "must be a whole number, got a string"),
    ({"text": "a", "number": 1.5}, "number", "must be a whole number, got a number"),
    ({"text": "a", "size": []}, "size", "must be a number, got a list"),
    ({"text": "a", "sure": 1}, "sure", "must be true or false, got a whole number"),
    ({"text": "a", "some": {}}, "some", "must be a list, got an object"),
    ({"text": "a", "some": ["a", 1]}, "some[1]", "must be a string, got a whole number"),
    ({"text": "a", "id": "1"}, "id", "must be a UUID"),
    ([], "body", "must be an object, got a list"),
)


def found(shape: type[Any], given: object) -> FieldProblem:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(given), type=shape)
    return from_msgspec(str(caught.value), shape)


@each_case(("given", "field", "message"), WRONG)
def test_a_mistake_is_told_in_the_words_of_json(given: object, field: str, message: str) -> None:
    assert found(Shape, given) == FieldProblem(field, message)


class Inner(msgspec.Struct):
    rules: tuple[Literal["b", "a"], ...] = ()


class Bounded(msgspec.Struct):
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 1
    share: Annotated[float, msgspec.Meta(ge=0.5, le=1)] = 1
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=3)] = "a"
    some: Annotated[tuple[int, ...], msgspec.Meta(min_length=1, max_length=2)] = (1,)
    named: Annotated[dict[str, int], msgspec.Meta(max_length=1)] = {}
    state: Literal["paused", "active"] | None = "active"
    kind: Literal["only"] = "only"
    code: Annotated[str, msgspec.Meta(pattern="^[0-7]$")] = "0"
    inner: Inner | None = None


@each_case(
    ("given", "field", "message"),
    [
        ({"limit": 0}, "limit", "must be at least 1"),
        ({"limit": 201}, "limit", "must be at most 200"),
        ({"share": 2}, "share", "must be at most 1"),
        ({"share": 0}, "share", "must be at least 0.5"),
        ({"text": ""}, "text", "must have at least 1 characters"),
        ({"text": "four"}, "text", "must have at most 3 characters"),
        ({"some": []}, "some", "must have at least 1 items"),
        ({"some": [1, 2, 3]}, "some", "must have at most 2 items"),
        ({"named": {"a": 1, "b": 2}}, "named", "must have at most 1 items"),
        ({"state": "gone"}, "state", "must be one of paused, active"),
        ({"kind": "other"}, "kind", "must be only"),
        ({"code": "8"}, "code", "must match ^[0-7]$"),
        ({"inner": {"rules": ["a", "c"]}}, "inner.rules[1]", "must be one of b, a"),
    ],
)
def test_a_bound_that_is_broken_is_named(given: dict[str, Any], field: str, message: str) -> None:
    assert found(Bounded, given) == FieldProblem(field, message)


@each_case(
    ("sentence", "expected"),
    [
        ("Expected `int` <= 1000 - at `$.limit`", FieldProblem("limit", "must be at most 1000")),
        ("Expected `str` of length <= 500 - at `$.cursor`", FieldProblem("cursor", "must have at most 500 characters")),
        ("Number out of range - at `$[...]`", FieldProblem("body", "number out of range")),
        ("Invalid UUID - at `$.endpoint_ids[0]`", FieldProblem("endpoint_ids[0]", "must be a UUID")),
        (
            "Invalid RFC3339 encoded datetime - at `$.deliver_at`",
            FieldProblem("deliver_at", "must be a time such as 2026-01-31T12:00:00Z"),
        ),
    ],
)
def test_what_msgspec_says_of_bounds_ids_and_times_is_put_into_our_words(sentence: str, expected: FieldProblem) -> None:
    assert from_msgspec(sentence) == expected


@each_case(
    ("policy", "field", "message"),
    [
        (5, "policy", "must be the name of a policy, a list of delays in seconds, or an object"),
        (["a"], "policy[0]", "must be a number, got a string"),
        ({}, "policy.delays", "is required"),
        ({"delays": "a"}, "policy.delays", "must be a list, got a string"),
        ({"delays": [], "more": 1}, "policy.more", "is unknown; remove it"),
    ],
)
def test_a_policy_is_judged_only_by_the_form_it_was_given_in(policy: object, field: str, message: str) -> None:
    given = {"name": "shop", "url": "https://shop.example", "policy": policy}
    assert found(EndpointIn, given) == FieldProblem(field, message)


def test_the_policies_that_have_a_name_are_those_that_are_built_in() -> None:
    from doorstep.policy.retry import BUILT_IN

    assert sorted(BUILT_IN) == list(POLICY_NAMES)
