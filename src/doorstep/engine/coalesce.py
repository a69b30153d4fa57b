"""Many small calls become one big one: whatever arrives while the last batch is being written is the next batch.

Nothing ever waits for a batch to fill (a 2 ms linger only hurt, see docs/explanation/scaling.md); an idle system writes
each call at once, a busy one writes hundreds together, because commits cost the same for one as for many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from doorstep.errors import Overloaded

T = TypeVar("T")
R = TypeVar("R")


class Weight(NamedTuple):
    """How much an item is: both count, because a few long payloads fill the memory as well as many short ones."""

    events: int
    size: int
    """In bytes."""

    def plus(self, other: Weight) -> Weight:
        return Weight(self.events + other.events, self.size + other.size)

    def minus(self, other: Weight) -> Weight:
        return Weight(self.events - other.events, self.size - other.size)

    def within(self, limit: Weight) -> bool:
        return self.events <= limit.events and self.size <= limit.size


_NOTHING = Weight(0, 0)


class Coalescer(Generic[T, R]):
    """Calls `write` with the items of many callers, and gives each caller the result of its own.

    `write` returns one result an item, in order; an exception among the results is raised in its caller alone,
    one raised by `write` itself in all callers of that batch.
    """

    def __init__(
        self,
        write: Callable[[list[T]], Awaitable[Sequence[R | Exception]]],
        weigh: Callable[[T], Weight],
        *,
        batch_max: Weight,
        queue_max: Weight,
    ) -> None:
        self._write = write
        self._weigh = weigh
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._queue: deque[tuple[T, Weight, asyncio.Future[R]]] = deque()
        self._queued = _NOTHING
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> Weight:
        """What has come and is in no batch yet."""
        return self._queued

    async def submit(self, item: T) -> R:
        """The result for this item, once the batch that holds it has been written."""
        weight = self._weigh(item)
        if self._queue and not self._queued.plus(weight).within(self._queue_max):
            raise Overloaded(
                f"{self._queued.events} events of {self._queued.size} bytes are waiting to be stored, "
                "which is as much as may wait; send this again in a moment"
            )
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queue.append((item, weight, future))
        self._queued = self._queued.plus(weight)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())
        return await future

    async def _write_all(self) -> None:
        try:
            while self._queue:
                await self._write_batch(self._next_batch())
        finally:
            self._task = None

    def _next_batch(self) -> list[tuple[T, asyncio.Future[R]]]:
        batch: list[tuple[T, asyncio.Future[R]]] = []
        total = _NOTHING
        while self._queue and (not batch or total.plus(self._queue[0][1]).within(self._batch_max)):
            item, weight, future = self._queue.popleft()
            batch.append((item, future))
            total = total.plus(weight)
        self._queued = self._queued.minus(total)
        return batch

    async def _write_batch(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        results: Sequence[R | Exception]
        try:
            results = await self._write([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001  every caller of the batch is told
            results = [error] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue  # its caller went away; what was written stays written
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


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
