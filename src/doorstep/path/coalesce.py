"""Many small calls become one big one: whatever arrives while the last batch is being written is the next batch.

Nothing ever waits for a batch to fill (a 2 ms linger only hurt, see docs/scaling.md); an idle system writes
each call at once, a busy one writes hundreds together, because commits cost the same for one as for many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from doorstep.errors import Overloaded

T = TypeVar("T")
R = TypeVar("R")


class Coalescer(Generic[T, R]):
    """Calls `write` with the items of many callers, and gives each caller the result of its own.

    `write` returns one result an item, in order; an exception among the results is raised in its caller alone,
    one raised by `write` itself in all callers of that batch. `size` tells how much an item weighs.
    """

    def __init__(
        self,
        write: Callable[[list[T]], Awaitable[Sequence[R | Exception]]],
        size: Callable[[T], int],
        *,
        batch_max: int,
        queue_max: int,
    ) -> None:
        self._write = write
        self._size = size
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._queue: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._queued = 0
        self._task: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """The result for this item, once the batch that holds it has been written."""
        size = self._size(item)
        if self._queued and self._queued + size > self._queue_max:
            raise Overloaded(f"{self._queued} events are waiting to be stored, which is as many as may wait")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queue.append((item, future))
        self._queued += size
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
        batch = [self._queue.popleft()]
        total = self._size(batch[0][0])
        while self._queue and total + (size := self._size(self._queue[0][0])) <= self._batch_max:
            batch.append(self._queue.popleft())
            total += size
        self._queued -= total
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
