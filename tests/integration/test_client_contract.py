"""The Python client and the API's OpenAPI document agree on every route, every parameter and every field."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, Unpack, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from doorstep.api.application import create_application
from doorstep.app import Doorstep
from doorstep.client import Client, NewEvent, Page, Selection
from doorstep.client.call import Call, get, one
from doorstep.client.events import status_of
from doorstep.client.verbs import Group, Verb
from tests.integration.schema_samples import barest, fullest
from tests.support.matrix import each_case

SOME_ID = UUID(int=1)
NOW = datetime(2026, 1, 31, tzinfo=UTC)
ARGUMENTS: dict[str, Any] = {
    "events": [NewEvent(event_type="a", payload=1, endpoint_ids=[], deliver_at=NOW, expires_at=NOW, metadata={})],
    "selection": Selection.everything(),
    "payload": {"a": 1},
    "metadata": {"a": 1},
    "endpoint_ids": [SOME_ID],
    "canary": True,
    **dict.fromkeys(("limit", "drain_per_second", "rate_per_second", "older_than_seconds", "overlap_seconds"), 1),
    **dict.fromkeys(("created_from", "created_before", "died_from", "died_before", "deliver_at", "expires_at"), NOW),
    **dict.fromkeys(("since", "until"), NOW),
    "skip_older_than": NOW,
}
READ_BY_OTHER_MEANS = {"/metrics"}


@cache
def document() -> dict[str, Any]:
    return create_application(Doorstep("memory://")).openapi()


def described(verb: Verb[..., Any]) -> Call[Any]:
    """The call that a client method describes when it gets every argument that it accepts."""
    parameters = list(inspect.signature(verb.described).parameters.values())[1:]
    given = {each.name: ARGUMENTS.get(each.name, "text") for each in parameters if each.kind is not each.VAR_KEYWORD}
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            given |= {name: ARGUMENTS.get(name, "text") for name in _unpacked(verb.described)}
    call: Call[Any] = verb.described(None, **given)
    return call


def _unpacked(function: Any) -> set[str]:
    """The field names of a function that takes `**fields: Unpack[Fields]`."""
    hints = get_type_hints(function)
    (fields,) = [get_args(hint)[0] for hint in hints.values() if get_origin(hint) is Unpack]
    return set(get_type_hints(fields))


def calls() -> Iterator[tuple[str, Call[Any]]]:
    with Client("http://127.0.0.1:1") as client:
        groups: list[Group[Any]] = [client, *(one for one in vars(client).values() if isinstance(one, Group))]
        for group in groups:
            for name, verb in inspect.getmembers(type(group), lambda value: isinstance(value, Verb)):
                if not inspect.isgeneratorfunction(verb.described) and name != "wait":
                    yield f"{type(group).__name__}.{name}", described(verb)


CALLS = list(calls())
each_call = each_case("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])


def operation(call: Call[Any]) -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"][call.route][call.method.lower()]
    return found


def test_every_route_of_the_api_has_a_verb() -> None:
    there = {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}
    known = {(call.method, call.route) for _, call in CALLS}
    assert there - known == set()
    assert known - there - {("GET", path) for path in READ_BY_OTHER_MEANS} == set()


@each_call
def test_a_question_can_say_all_that_the_route_knows_and_nothing_else(call: Call[Any]) -> None:
    if call.route in READ_BY_OTHER_MEANS:
        return
    parameters = operation(call).get("parameters", [])
    assert {name.partition("[")[0] for name in call.query} == {
        one["name"] for one in parameters if one["in"] == "query"
    }
    assert len(call.ids) == len([one for one in parameters if one["in"] == "path"])


@each_call
def test_a_body_has_no_field_that_the_route_does_not_know(call: Call[Any]) -> None:
    if call.content is None:
        return
    sent = msgspec.json.decode(call.content)
    assert set(sent) <= _fields(_body_schema(call)), call.route


@each_call
def test_every_answer_that_the_route_can_give_is_understood_in_full(call: Call[Any]) -> None:
    for schema in _answer_schemas(call):
        call.reader(msgspec.json.encode(barest(schema, document())))
        assert _lost(call, schema) == set()


def test_a_field_that_the_client_left_out_would_be_noticed() -> None:
    class Less(msgspec.Struct):
        event_id: UUID

    (schema,) = _answer_schemas(status_of(SOME_ID))
    assert ".retry_attempts" in _lost(get(one(Less), "/v1/events/{event_id}/status", SOME_ID), schema)


def _lost(call: Call[Any], schema: dict[str, Any]) -> set[str]:
    """The fields of a response that are missing from the object that the client reads from it."""
    sample = fullest(schema, document())
    return _names(sample) - _names(_plain(call.reader(msgspec.json.encode(sample)), sample))


def _body_schema(call: Call[Any]) -> dict[str, Any]:
    content = operation(call).get("requestBody", {}).get("content", {})
    schema: dict[str, Any] = content.get("application/json", {}).get("schema", {})
    return schema


def _answer_schemas(call: Call[Any]) -> Iterator[dict[str, Any]]:
    if call.route in READ_BY_OTHER_MEANS:
        return
    for status, answer in operation(call)["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if status < "300" and schema:
            yield from _fitting(schema, call)


def _fitting(schema: dict[str, Any], call: Call[Any]) -> Iterator[dict[str, Any]]:
    """If a response has several forms, those that match what this client method sends."""
    forms = schema.get("anyOf") or schema.get("oneOf") or [schema]
    sent = msgspec.json.decode(call.content) if call.content else {}
    for form in forms:
        title = form.get("$ref", "").rpartition("/")[2]
        if ("Preview" in title) == ("preview" in sent) and ("Receipts" in title) == ("events" in sent):
            yield form


def _fields(schema: dict[str, Any]) -> set[str]:
    if "$ref" in schema:
        return _fields(document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    forms = schema.get("anyOf", []) + schema.get("oneOf", []) + schema.get("allOf", [])
    return set(schema.get("properties", {})).union(*map(_fields, forms))


def _plain(read: Any, sample: Any) -> Any:
    """The object that the client read, converted back to the shape of the response."""
    if isinstance(read, Page):
        (name,) = set(sample) - {"pagination"}
        read = {name: read.items, "pagination": read.pagination}
    if isinstance(read, tuple):
        read = {"events": read}
    return msgspec.json.decode(msgspec.json.encode(read))


def _names(value: Any, path: str = "") -> set[str]:
    """Every field by its path, without what is inside free-form fields."""
    if isinstance(value, dict):
        inner = {f"{path}.{name}" for name in value}
        return inner.union(*(_names(part, f"{path}.{name}") for name, part in value.items()))
    if isinstance(value, list | tuple):
        return set().union(*(_names(part, f"{path}[]") for part in value))
    return set()
