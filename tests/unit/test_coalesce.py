"""Coalescing: many callers share few writes, and each gets its own answer only after its write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from doorstep import coalesce
from doorstep.coalesce import Coalescer, Weight
from doorstep.errors import InvalidInput, Overloaded, StoreUnavailable


class Writer:
    """Writes when the gate is open, and returns each item doubled."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def write(self, items: list[int]) -> Sequence[int | Exception]:
        self.batches.append(items)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [InvalidInput("item", "is odd") if item < 0 else 2 * item for item in items]


PLENTY = 1_000_000


def coalescer(writer: Writer, batch_max: int = 100, queue_max: int = 1_000) -> Coalescer[int, int]:
    """Limited by the number of events; an item's absolute value is its number of events."""
    return Coalescer(
        writer.write,
        lambda item: Weight(max(1, abs(item)), 0),
        batch_max=Weight(batch_max, PLENTY),
        queue_max=Weight(queue_max, PLENTY),
    )


def byte_coalescer(writer: Writer, batch_max: int = 100, queue_max: int = 1_000) -> Coalescer[int, int]:
    """Limited by bytes; an item's absolute value is its size in bytes."""
    return Coalescer(
        writer.write,
        lambda item: Weight(1, abs(item)),
        batch_max=Weight(PLENTY, batch_max),
        queue_max=Weight(PLENTY, queue_max),
    )


Limited = Callable[..., Coalescer[int, int]]
MAKERS = pytest.mark.parametrize("limited", [coalescer, byte_coalescer], ids=["events", "bytes"])


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_call_on_an_idle_system_is_written_at_once_and_alone() -> None:
    writer = Writer()
    assert await coalescer(writer).submit(1) == 2
    assert writer.batches == [[1]]


async def test_what_arrives_during_a_write_is_the_next_batch() -> None:
    writer = Writer()
    writer.gate.clear()
    gathering = coalescer(writer)
    calls = [asyncio.create_task(gathering.submit(1))]
    await turns()
    calls += [asyncio.create_task(gathering.submit(1)) for _ in range(9)]
    await turns()
    writer.gate.set()
    assert await asyncio.gather(*calls) == [2] * 10
    assert [len(batch) for batch in writer.batches] == [1, 9]


async def test_nobody_is_answered_before_the_write() -> None:
    writer = Writer()
    writer.gate.clear()
    call = asyncio.create_task(coalescer(writer).submit(1))
    await turns(10)
    assert not call.done()
    writer.gate.set()
    assert await call == 2


async def test_every_caller_gets_the_answer_to_its_own_item() -> None:
    gathering = coalescer(Writer(), batch_max=7)
    assert await asyncio.gather(*(gathering.submit(n) for n in range(1, 6))) == [2, 4, 6, 8, 10]


async def test_an_item_that_is_refused_fails_alone() -> None:
    gathering = coalescer(Writer())
    results = await asyncio.gather(*(gathering.submit(n) for n in (1, -1, 2)), return_exceptions=True)
    assert results[0::2] == [2, 4]
    assert isinstance(results[1], InvalidInput)


async def test_a_write_that_fails_fails_all_its_callers_and_none_of_the_next() -> None:
    writer = Writer()
    writer.error = StoreUnavailable("away")
    gathering = coalescer(writer)
    results = await asyncio.gather(gathering.submit(1), gathering.submit(2), return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    writer.error = None
    assert await gathering.submit(3) == 6


@MAKERS
async def test_no_batch_weighs_more_than_the_maximum_unless_one_item_alone_does(limited: Limited) -> None:
    writer = Writer()
    gathering = limited(writer, batch_max=10)
    await asyncio.gather(*(gathering.submit(n) for n in (6, 4, 5, 50, 1)))
    assert writer.batches == [[6, 4], [5], [50], [1]]


@MAKERS
async def test_with_too_much_waiting_a_caller_is_told_to_come_again_and_nothing_is_written_for_it(
    limited: Limited,
) -> None:
    writer = Writer()
    writer.gate.clear()
    gathering = limited(writer, queue_max=10)
    first = asyncio.create_task(gathering.submit(1))
    await turns()
    second = asyncio.create_task(gathering.submit(9))
    await turns()
    with pytest.raises(Overloaded, match="are waiting to be stored"):
        await gathering.submit(2)
    writer.gate.set()
    assert (await first, await second) == (2, 18)
    assert writer.batches == [[1], [9]]


@MAKERS
async def test_one_item_larger_than_the_queue_is_still_taken_by_an_idle_system(limited: Limited) -> None:
    assert await limited(Writer(), queue_max=10).submit(50) == 100


async def test_a_refusal_says_how_much_is_waiting() -> None:
    writer = Writer()
    writer.gate.clear()
    gathering = byte_coalescer(writer, queue_max=10)
    calls = [asyncio.create_task(gathering.submit(1))]
    await turns()
    calls += [asyncio.create_task(gathering.submit(9))]
    await turns()
    with pytest.raises(Overloaded, match="^1 events of 9 bytes are waiting"):
        await gathering.submit(2)
    writer.gate.set()
    await asyncio.gather(*calls)


async def test_a_caller_that_goes_away_harms_no_other() -> None:
    writer = Writer()
    writer.gate.clear()
    gathering = coalescer(writer)
    leaving, staying = (asyncio.create_task(gathering.submit(n)) for n in (1, 2))
    await turns()
    leaving.cancel()
    await turns()
    writer.gate.set()
    assert await staying == 4
    assert await gathering.submit(3) == 6


async def test_a_batch_that_is_stuck_holds_nobody_up_and_the_next_callers_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coalesce, "_LONG_SECONDS", 0.01)
    writer, away = Writer(), StoreUnavailable("the store does not answer")
    writer.gate.clear()

    async def check() -> None:
        if not writer.gate.is_set():
            raise away

    made = Coalescer(
        writer.write, lambda _: Weight(1, 0), batch_max=Weight(1, 1), queue_max=Weight(100, 100), check=check
    )
    waiting = [asyncio.ensure_future(made.submit(item)) for item in (1, 2)]
    assert [type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)] == [StoreUnavailable] * 2
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await asyncio.wait_for(made.submit(3), 0.001)
    writer.gate.set()
    while writer.batches == [[1]]:
        await asyncio.sleep(0)
        with suppress(StoreUnavailable):
            assert await made.submit(4) == 8
    assert writer.batches == [[1], [4]], "an item that was refused is not written later"
    assert made.waiting == Weight(0, 0)


async def test_a_batch_that_only_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "_LONG_SECONDS", 0.001)
    writer, checks = Writer(), 0
    writer.gate.clear()

    async def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 5:
            writer.gate.set()

    made = Coalescer(
        writer.write, lambda _: Weight(1, 0), batch_max=Weight(9, 9), queue_max=Weight(100, 100), check=check
    )
    assert await asyncio.gather(made.submit(1), made.submit(2)) == [2, 4]
    assert checks >= 5
