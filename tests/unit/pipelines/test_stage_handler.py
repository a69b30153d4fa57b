"""What must and must not happen to an entity and its attempts when a stage event is delivered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

import pytest

from doorstep import Doorstep, Entity, Gate, Permanent, Pipeline, Received, Stage
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from doorstep.model.attempt import Attempt
from doorstep.model.listing import AuditFilter
from doorstep.testing import Sandbox, sandbox
from tests.unit.pipelines.declared import protocols

TRANSLATED = Stage("extracting", failed="unread", policy=[300], code_map={"OCR-7": "SERVICE_UNAVAILABLE"})
SECRET = {"iban": "XX00 TEST 0000", "text": "Dear Sir, " * 10, "quote": 'a "quoted" text, ' * 5}


def declared(function: Callable[[Entity], Any]) -> tuple[Doorstep, Pipeline]:
    doorstep, pipeline = Doorstep("memory://"), protocols()
    doorstep.add(pipeline)
    pipeline.stage("extracting")(function)
    pipeline.stage("grounding")(lambda _: None)
    return doorstep, pipeline


async def attempts_of(doorstep: Doorstep, entity: Entity) -> list[Attempt]:
    assert entity.event_id is not None
    (delivery,) = await doorstep.components.reader.deliveries(DEFAULT_ORG, entity.event_id)
    return await doorstep.components.reader.attempts(DEFAULT_ORG, delivery.delivery_id)


# -- what an error may contain -----------------------------------------------------------------------------


def quotes_all(entity: Entity) -> None:
    raise ValueError(f"cannot read {entity.data}")


def quotes_a_text(entity: Entity) -> None:
    int(entity.data["text"])


def quotes_a_quote(entity: Entity) -> None:
    raise KeyError(entity.data["quote"])


def quotes_a_short_text(entity: Entity) -> None:
    raise ValueError(f"there is no account {entity.data['iban']}")


def quotes_in_a_cause(entity: Entity) -> None:
    try:
        quotes_all(entity)
    except ValueError as error:
        raise Permanent("BAD", f"bad: {entity.data}") from error


async def quotes_what_it_changed(entity: Entity) -> None:
    entity.data["more"] = "of it"
    raise ValueError(f"cannot read {entity.data}")


@pytest.mark.parametrize(
    "function",
    [quotes_all, quotes_a_text, quotes_a_short_text, quotes_a_quote, quotes_in_a_cause, quotes_what_it_changed],
)
async def test_the_data_of_an_entity_is_in_no_error(function: Callable[[Entity], Any]) -> None:
    doorstep, pipeline = declared(function)
    async with sandbox(doorstep) as box:
        started = await pipeline.start(SECRET, "p1")
        await box.drain()
        dead = await pipeline.entity("p1")
        attempts = await attempts_of(doorstep, started)
    assert dead.status == "dead_letter"
    assert "[payload]" in attempts[0].detail
    told = "".join([dead.error_reason or "", str(dead.metadata), *(f"{one.detail}{one.reason}" for one in attempts)])
    for quoted in ("TEST 0000", "Dear Sir, Dear Sir", '"quoted" text'):
        assert quoted not in told.replace("\\", "")


class Slow(Exception):
    """An exception that records the threads in which its text is built."""

    asked_in: ClassVar[list[int]] = []

    def __str__(self) -> str:
        self.asked_in.append(threading.get_ident())
        return "at last"


def fails(entity: Entity) -> None:
    raise Slow


async def fails_async(entity: Entity) -> None:
    raise Slow


@pytest.mark.parametrize("function", [fails, fails_async])
async def test_what_a_stage_raised_is_worded_once_and_never_in_the_event_loop(function: Callable[..., Any]) -> None:
    Slow.asked_in.clear()
    doorstep, pipeline = declared(function)
    async with sandbox(doorstep) as box:
        started = await pipeline.start({}, "p1")
        await box.drain()
        attempts = await attempts_of(doorstep, started)
    assert all(one.detail.endswith("Slow: at last\n") for one in attempts)
    assert len(Slow.asked_in) == len(attempts) and threading.get_ident() not in Slow.asked_in


# -- an unavailable store ----------------------------------------------------------------------------------


@pytest.mark.parametrize("away_at", [2, 3])
async def test_a_store_that_is_away_for_a_moment_does_not_cost_all_tries_at_once(
    away_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    doorstep, pipeline = declared(lambda entity: ran.append(entity.entity_id))
    async with sandbox(doorstep) as box:
        writes = 0
        put_entity = box.doorstep.components.store.put_entity

        async def away(*args: Any) -> bool:
            nonlocal writes
            writes += 1
            if writes == away_at:
                raise StoreUnavailable("away")
            return await put_entity(*args)

        monkeypatch.setattr(box.doorstep.components.store, "put_entity", away)
        started = await pipeline.start({}, "p1")
        await box.drain(until=4)
        (first,) = await attempts_of(doorstep, started)
        assert (first.code, first.category) == ("STORE_UNAVAILABLE", "transient")
        await box.drain(until=2)
        assert (await pipeline.entity("p1")).status == "pending_review"


# -- a closed store ----------------------------------------------------------------------------------------


async def test_a_try_that_outlasts_its_doorstep_opens_nothing_and_writes_nothing() -> None:
    doorstep, _ = declared(lambda _: None)
    done: list[str] = []

    async def work() -> None:
        done.append("work")

    async with sandbox(doorstep):
        pin = doorstep.binding.pin()
        await pin.call(work)
    for ask in (pin.call, lambda given: asyncio.to_thread(pin.call_sync, given)):
        with pytest.raises(StoreUnavailable, match="has been closed"):
            await ask(work)
    async with sandbox(doorstep):
        with pytest.raises(StoreUnavailable):
            await pin.call(work)
    assert done == ["work"]
    assert not doorstep.binding.is_open()


# -- kinds of functions ------------------------------------------------------------------------------------


class Extractor:
    """A callable object instead of a function."""

    async def __call__(self, entity: Entity) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"by": type(self).__name__}


class PlainExtractor:
    def __call__(self, entity: Entity) -> dict[str, str]:
        return {"by": type(self).__name__}


@pytest.mark.parametrize("function", [Extractor(), PlainExtractor()])
async def test_an_object_that_can_be_called_is_a_stage(function: Callable[[Entity], Any]) -> None:
    doorstep, pipeline = declared(function)
    async with sandbox(doorstep) as box:
        await pipeline.start({}, "p1")
        await box.drain()
        entity = await pipeline.entity("p1")
    assert (entity.status, entity.data) == ("pending_review", {"by": type(function).__name__})


# -- what the methods return -------------------------------------------------------------------------------


@pytest.fixture
async def opened() -> Any:
    doorstep, pipeline = declared(lambda entity: {"bad": 1} if not entity.data else quotes_all(entity))
    async with sandbox(doorstep) as box:
        yield box, pipeline


async def test_what_a_verb_returns_is_the_entity_as_it_is_kept(opened: tuple[Sandbox, Pipeline]) -> None:
    box, pipeline = opened
    started = await pipeline.start({}, "p1")
    assert started == await pipeline.entity("p1")
    await box.drain()
    assert await pipeline.reject("p1", "mary") == await pipeline.entity("p1")
    assert await pipeline.retry("p1", "mary") == await pipeline.entity("p1")
    await pipeline.start({}, "p2")
    await box.drain()
    assert await pipeline.approve("p2", "mary") == await pipeline.entity("p2")


async def test_of_two_who_approve_at_once_the_second_does_not_open_the_next_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doorstep = Doorstep("memory://")
    stages: list[Stage | Gate] = [Stage("reading", failed="unread"), Gate("first_review"), Gate("second_review")]
    pipeline = Pipeline("protocol", first="uploaded", stages=stages, last="complete", policy=(0, 0))
    doorstep.add(pipeline)
    pipeline.stage("reading")(lambda _: None)
    async with sandbox(doorstep) as box:
        await pipeline.start({}, "p1")
        await box.drain()
        store = box.doorstep.components.store
        put_entity = store.put_entity

        async def after_mary(*turn: Any) -> bool:
            monkeypatch.setattr(store, "put_entity", put_entity)
            await pipeline.approve("p1", "mary")
            return await put_entity(*turn)

        monkeypatch.setattr(store, "put_entity", after_mary)
        with pytest.raises(Conflict, match="is second_review, not first_review; look at it again"):
            await pipeline.approve("p1", "john")
        for decide in (pipeline.approve, pipeline.reject):
            with pytest.raises(Conflict, match="is second_review, not first_review; look at it again"):
                await decide("p1", "mary", gate="first_review")
        assert (await pipeline.approve("p1", "mary", gate="second_review")).status == "complete"


async def test_an_entity_has_the_code_that_its_delivery_has() -> None:
    doorstep, pipeline = Doorstep("memory://"), protocols(stages=[TRANSLATED])
    doorstep.add(pipeline)

    @pipeline.stage("extracting")
    def extract(_: Entity) -> None:
        raise Permanent("OCR-7", "The reader is busy.")

    async with sandbox(doorstep) as box:
        started = await pipeline.start({}, "p1")
        await box.drain()
        failed = await pipeline.entity("p1")
        (attempt,) = await attempts_of(doorstep, started)
    assert (attempt.code, attempt.category) == ("SERVICE_UNAVAILABLE", "transient")
    error = failed.metadata["error"]
    assert (failed.status, error["code"], error["kind"]) == ("unread", attempt.code, attempt.category)


async def test_an_id_is_a_text_or_a_uuid(opened: tuple[Sandbox, Pipeline]) -> None:
    _, pipeline = opened
    given = UUID(int=7)
    entity = await pipeline.start({}, given)
    assert entity.entity_id == str(given)
    assert await pipeline.entity(given) == entity
    for wrong in (7, b"p1", ["p1"]):
        with pytest.raises(InvalidInput, match="entity_id: must be text or a UUID"):
            await pipeline.start({}, wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="entity_id: must be text or a UUID"):
            await pipeline.entity(wrong)  # type: ignore[arg-type]


async def test_a_page_of_entities_has_its_limits(opened: tuple[Sandbox, Pipeline]) -> None:
    _, pipeline = opened
    for limit in (0, -1, 201):
        with pytest.raises(InvalidInput, match="limit: must be a whole number from 1 to 200"):
            await pipeline.list(limit=limit)


async def test_a_deleted_entity_is_gone_whatever_its_stage_still_does(opened: tuple[Sandbox, Pipeline]) -> None:
    box, pipeline = opened
    started = await pipeline.start({}, "p1")
    await pipeline.delete("p1", "ops", "asked for by its owner")
    await box.drain(until=60)
    for reading in (pipeline.entity, pipeline.history):
        with pytest.raises(NotFound):
            await reading("p1")
    with pytest.raises(NotFound):
        await pipeline.delete("p1", "ops")
    (attempt,) = await attempts_of(box.doorstep, started)
    assert (attempt.code, b"stale" in attempt.response_body) == (None, True)
    (line,) = (await box.doorstep.components.store.page(DEFAULT_ORG, AuditFilter(action="entity.delete"))).items
    assert (line.actor, line.subjects, line.result, line.reason) == (
        "ops",
        ("protocol", "p1"),
        "uploaded",
        "asked for by its owner",
    )
    again = await pipeline.start({}, "p1")
    await box.drain()
    assert again.created_at == (await pipeline.entity("p1")).created_at


# -- entities created by an event --------------------------------------------------------------------------


async def test_an_entity_that_comes_twice_is_one_and_another_with_its_id_is_a_dead_letter(
    opened: tuple[Sandbox, Pipeline],
) -> None:
    box, pipeline = opened
    first = await box.doorstep.send("protocol.uploaded", {"entity_id": "p1", "data": {}})
    await box.drain()
    (line, *_) = await pipeline.history("p1")
    assert line.event_id == first.event_id
    (delivery,) = await box.doorstep.components.reader.deliveries(DEFAULT_ORG, first.event_id)
    assert delivery.code is None
    await pipeline.arrive(_again(first.event_id))
    second = await box.doorstep.send("protocol.uploaded", {"entity_id": "p1", "data": {"n": 2}})
    await box.drain()
    box.assert_dead(second, code="CONFLICT")
    assert (await pipeline.entity("p1")).data == {"bad": 1}


async def test_what_cannot_be_an_entity_is_a_dead_letter_at_once(opened: tuple[Sandbox, Pipeline]) -> None:
    box, _ = opened
    payloads: list[object] = [{"data": {}}, {"entity_id": 7, "data": {}}, {"entity_id": "../etc", "data": {}}, [1]]
    for payload in payloads:
        receipt = await box.doorstep.send("protocol.uploaded", payload)
        await box.drain()
        box.assert_dead(receipt, code="INVALID_FORMAT")


def _again(event_id: UUID) -> Received:
    return Received(
        event_id=event_id,
        delivery_id=UUID(int=1),
        event_type="protocol.uploaded",
        payload=b'{"entity_id": "p1", "data": {}}',
        attempt=2,
        retry_attempts=1,
        correlation_id="p1",
        accepted_at=0,
    )
