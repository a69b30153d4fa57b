"""Shared answers: of many callers who ask the same at the same time, one asks the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Shared:
    """Who asks while the same is being asked waits for that to end and shares the next answer with all who wait.

    So no answer is older than its question: whoever has just changed something sees the change.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Any]] = {}
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    async def ask(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        task = self._next.get(question)
        if task is None:
            task = self._next[question] = asyncio.create_task(self._in_turn(question, ask))
        answer: T = await asyncio.shield(task)  # a caller that hangs up does not take the answer from the others
        return answer

    async def _in_turn(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        if (running := self._running.get(question)) is not None:
            await asyncio.wait([running])
        task = self._running[question] = self._next.pop(question)
        try:
            return await ask()
        finally:
            if self._running.get(question) is task:
                del self._running[question]
