"""Shared answers are fresh, and concurrent callers query the source once."""

from __future__ import annotations

import asyncio

import pytest

from doorstep.coalesce import Shared


class Source:
    """Counts how often it is queried, and answers when the test allows it."""

    def __init__(self) -> None:
        self.asked = 0
        self.value = 0
        self.let = asyncio.Event()
        self.let.set()

    async def ask(self) -> int:
        self.asked += 1
        value = self.value
        await self.let.wait()
        return value


async def test_who_asks_together_shares_one_answer() -> None:
    source, shared = Source(), Shared()
    answers = await asyncio.gather(*(shared.ask("a", source.ask) for _ in range(50)))
    assert answers == [0] * 50
    assert source.asked == 1


async def test_an_answer_is_never_older_than_its_question() -> None:
    source, shared = Source(), Shared()
    source.let.clear()
    early = asyncio.create_task(shared.ask("a", source.ask))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert source.asked == 1
    source.value = 1  # changed after the first query reached the source
    late = [asyncio.create_task(shared.ask("a", source.ask)) for _ in range(20)]
    await asyncio.sleep(0)
    source.let.set()
    assert await early == 0
    assert await asyncio.gather(*late) == [1] * 20
    assert source.asked == 2


async def test_different_questions_do_not_wait_for_each_other() -> None:
    slow, quick, shared = Source(), Source(), Shared()
    slow.let.clear()
    waiting = asyncio.create_task(shared.ask("slow", slow.ask))
    assert await shared.ask("quick", quick.ask) == 0
    slow.let.set()
    await waiting


async def test_a_caller_that_hangs_up_does_not_take_the_answer_from_the_others() -> None:
    source, shared = Source(), Shared()
    source.let.clear()
    first, second = (asyncio.create_task(shared.ask("a", source.ask)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    source.let.set()
    assert await second == 0
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_failure_is_told_to_all_who_share_it_and_the_next_question_is_asked_anew() -> None:
    shared = Shared()

    async def fail() -> int:
        raise OSError("away")

    failed = await asyncio.gather(*(shared.ask("a", fail) for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in failed] == [OSError] * 3
    assert await shared.ask("a", Source().ask) == 0
