"""Declarations in a program: each is checked where it is made, before Doorstep is opened, and needs a unique name."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.config import Settings
from doorstep.errors import ConfigError
from doorstep.model.endpoint import CircuitRules, RetryPolicy, Slo
from doorstep.model.org import Org
from doorstep.operations.endpoint_rules import policies_of
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Stage
from doorstep.transports.handler_replies import Handler, Received
from tests.reference import ReferenceStore
from tests.support.builders import NOW, new_id
from tests.support.patience import PATIENCE_SECONDS
from tests.support.shortcuts import put
from tests.support.transports import FakeTransport

A, B = new_id(), new_id()


@pytest.fixture
async def ds() -> Doorstep:
    store = ReferenceStore()
    for number, org_id in enumerate((A, B)):
        await put(store, Org(org_id=org_id, name=f"org {number}", created_at=NOW))
    return Doorstep(Settings(database_url="memory://", admin_key="an-admin-key"), store=store)


def take(_: Received) -> None: ...


async def until_delivered(ds: Doorstep, *seen: list[Received]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not all(seen):
            await asyncio.sleep(0.001)


# -- functions ---------------------------------------------------------------------------------------------------------


def _plain_generator(_: Received) -> Iterator[None]:
    yield


async def _async_generator(_: Received) -> AsyncIterator[None]:
    yield


class _Generating:
    def __call__(self, _: Received) -> Iterator[None]:
        yield


NEVER_RUNS = [_plain_generator, _async_generator, _Generating(), functools.partial(_plain_generator)]


@pytest.mark.parametrize("function", NEVER_RUNS, ids=["plain", "async", "object", "partial"])
def test_a_function_that_would_seem_to_succeed_and_never_run_is_refused_where_it_stands(
    ds: Doorstep, function: Handler
) -> None:
    for declare in (ds.handler("pay", name="ship"), partial_register(ds, "ship"), ds.on_dead_letter, a_stage()):
        with pytest.raises(ConfigError, match="contains a yield"):
            declare(function)


@pytest.mark.parametrize("function", [lambda: None, lambda one, two: None, "ship"], ids=["none", "two", "text"])
def test_a_function_that_could_only_fail_at_each_call_is_refused_where_it_stands(
    ds: Doorstep, function: Handler
) -> None:
    for declare in (ds.handler("pay", name="ship"), partial_register(ds, "ship"), ds.on_dead_letter, a_stage()):
        with pytest.raises(ConfigError, match="must take|must be a function"):
            declare(function)


def test_whatever_can_be_called_with_one_argument_may_be_a_handler(ds: Doorstep) -> None:
    for number, function in enumerate((print, take, Mock(), functools.partial(lambda one, two: None, 1), [].append)):
        ds.handler("pay", name=f"ship {number}")(function)


def partial_register(ds: Doorstep, name: str) -> Callable[[Any], object]:
    return functools.partial(ds.register, name)


def a_stage() -> Callable[[Any], object]:
    pipeline = Pipeline("parcel", first="packed", stages=[Stage("sending", failed="unsent")], last="sent")
    return pipeline.stage("sending")


# -- names -------------------------------------------------------------------------------------------------------------


async def test_a_name_that_is_taken_is_refused_in_any_organization_unless_it_is_the_same_function(
    ds: Doorstep,
) -> None:
    ds.handler("pay", name="ship", org_id=A)(take)
    with pytest.raises(ConfigError, match="two handlers are named 'ship'; give one of them another name="):
        ds.handler("pay", name="ship", org_id=B)(lambda _: None)
    with pytest.raises(ConfigError, match="two handlers are named 'ship'"):
        ds.register("ship", lambda _: None, org_id=B)
    ds.handler("pay", name="ship", org_id=B)(take)
    assert ds.registry.handler_orgs == {"ship": {A, B}}


async def test_a_registration_while_it_runs_wakes_the_worker_for_what_waits_for_the_handler(ds: Doorstep) -> None:
    await ds.open()
    worker = ds.components.make_worker(FakeTransport(ds.clock), lambda: 0.5)
    ds.components.worker = worker  # not started, because its polls would wake it too
    ds.register("ship", take)
    await asyncio.sleep(0)
    assert worker.dispatcher.wake.is_set()
    ds.components.worker = None
    await ds.close()


async def test_a_later_registration_replaces_an_earlier_one_of_the_same_organization(ds: Doorstep) -> None:
    ds.register("ship", lambda _: None)
    ds.register("ship", take)
    assert ds.registry.handlers == {"ship": take} and ds.registry.handler_orgs == {"ship": {DEFAULT_ORG}}


@pytest.mark.parametrize(
    "function", [lambda _: None, functools.partial(take), type("Callee", (), {"__call__": lambda self, _: None})()]
)
def test_what_has_no_name_of_its_own_must_be_given_one(function: Handler) -> None:
    ds = Doorstep("memory://")
    with pytest.raises(ConfigError, match="has no name; set one with name="):
        ds.handler("order.*")(function)
    ds.handler("order.*", name="ship")(function)


# -- organizations -----------------------------------------------------------------------------------------------------


async def test_an_endpoint_of_another_organization_cannot_feed_a_handler_by_naming_it(ds: Doorstep) -> None:
    seen: list[Received] = []
    ds.handler("pay", name="ship")(seen.append)
    async with ds:
        await ds.create_endpoint(name="thief", org_id=A, handler="ship", event_types=["*"])
        stolen = await ds.send("pay", {}, org_id=A)
        await ds.send("pay", {})
        await until_delivered(ds, seen)
        (delivery,) = await ds.deliveries(stolen.event_id, org_id=A)
        # The delivery waits for a worker whose program has this handler for organization A.
        assert not await ds.attempts(delivery.delivery_id, org_id=A)
    assert [received.org_id for received in seen] == [DEFAULT_ORG]


async def test_a_handler_of_two_organizations_is_told_which_one_it_works_for(ds: Doorstep) -> None:
    seen: list[Received] = []
    for org_id in (A, B):
        ds.handler("pay", name="ship", org_id=org_id)(seen.append)
    async with ds:
        for org_id in (A, B):
            await ds.send("pay", {}, org_id=org_id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(seen) < 2:
                await asyncio.sleep(0.001)
    assert {received.org_id for received in seen} == {A, B}


# -- checked where it is made ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"timeout_seconds": 120}, "handler 'ship': timeout_seconds: must be from 0.1 to "),
        ({"concurrency_max": 0}, "handler 'ship': concurrency_max: must be from 1 to 10000, got 0"),
        ({"policy": "no such"}, "handler 'ship': policy: "),
        ({"policy_by_event_type": {"a": [-1]}}, "handler 'ship': policy_by_event_type.a: delays must be"),
        ({"timeout": 3}, "handler 'ship': timeout: is not a setting of an endpoint"),
        ({"memory_mb_max": 64}, "memory_mb_max of handler 'ship' only limits separate processes"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_once_with_the_handlers_name(
    fields: dict[str, object], sentence: str
) -> None:
    ds = Doorstep("memory://")
    with pytest.raises(ConfigError) as refused:
        ds.handler("order.*", name="ship", **fields)(take)  # type: ignore[arg-type]
    assert str(refused.value).startswith(sentence)
    assert not ds.registry.declarations and not ds.registry.handlers


async def test_a_handler_that_is_declared_on_an_open_doorstep_comes_too_late_and_is_told_so(ds: Doorstep) -> None:
    sentence = "handler 'take' is declared too late: this Doorstep is open; declare handlers before it is opened"
    async with ds:
        with pytest.raises(ConfigError, match=sentence):
            ds.handler("order.*")(take)
    ds.handler("order.*")(take)


def test_a_policy_may_be_written_as_over_http() -> None:
    ds = Doorstep("memory://")
    ds.handler("a", policy={"delays": [1, 2.5], "jitter": 0}, policy_by_event_type={"a": {"delays": []}})(_ship)
    (declared,) = ds.registry.declarations
    assert policies_of(declared.form, RetryPolicy(())) == {
        "policy": RetryPolicy((1.0, 2.5), jitter=0.0),
        "policy_by_event_type": {"a": RetryPolicy(())},
    }
    for wrong, sentence in POLICIES_REFUSED:
        with pytest.raises(ConfigError) as refused:
            ds.handler("b", name="b", policy=wrong)(_ship)
        assert str(refused.value) == f"handler 'b': {sentence}"


POLICIES_REFUSED: tuple[tuple[Any, str], ...] = (
    ({"delay": [1]}, "policy.delay: is unknown; remove it"),
    ({}, "policy.delays: is required"),
    ({"delays": "soon"}, "policy.delays: must be a list, got a string"),
    ({"delays": ["5s"]}, "policy.delays[0]: must be a number, got a string"),
    (["5s"], "policy[0]: must be a number, got a string"),
    (5, "policy: must be the name of a policy, a list of delays in seconds, or an object"),
    ({"delays": [-1]}, "policy: delays must be from 0 to 2592000 seconds, got [-1.0]"),
)


def test_a_circuit_and_a_target_may_be_written_as_over_http() -> None:
    ds = Doorstep("memory://")
    ds.handler("a", circuit={"enabled": False}, slo={"success": 0.9})(_ship)
    (declared,) = ds.registry.declarations
    assert (declared.form.circuit, declared.form.slo) == (CircuitRules(enabled=False), Slo(success=0.9))
    wrong: tuple[tuple[Any, str], ...] = (
        ({"circuit": {"enable": False}}, "circuit.enable: is unknown; remove it"),
        ({"circuit": {"failures_max": "5"}}, "circuit.failures_max: must be a whole number, got a string"),
        ({"slo": {"success": "all"}}, "slo.success: must be a number, got a string"),
        ({"slo": {"success": 2}}, "slo.success: must be from 0.5 to 0.99999, got 2"),
    )
    for fields, sentence in wrong:
        with pytest.raises(ConfigError) as refused:
            ds.handler("b", name="b", **fields)(_ship)
        assert str(refused.value) == f"handler 'b': {sentence}"


def _ship(event: object) -> None:
    pass
