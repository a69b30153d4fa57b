"""Group commit: all calls that arrive while one batch is being written form the next batch.

A commit costs the same for one call as for many. No call ever waits for a batch to fill: an idle system writes each call
immediately, and a busy system writes hundreds of calls together. (A wait of 2 ms to collect more calls made everything
slower; see docs/explanation/scaling.md.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from doorstep.errors import Overloaded

T = TypeVar("T")
R = TypeVar("R")


class Weight(NamedTuple):
    """The size of an item, in both events and bytes, because a few large payloads use as much memory as many small
    ones."""

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
    """Calls `write` with the items of many callers, and returns each caller's own result to that caller.

    `write` returns one result for each item, in order. An exception among the results is raised only for the caller of
    that item; an exception that `write` itself raises is raised for all callers of the batch.
    """

    def __init__(
        self,
        write: Callable[[list[T]], Awaitable[Sequence[R | Exception]]],
        weigh: Callable[[T], Weight],
        *,
        batch_max: Weight,
        queue_max: Weight,
        check: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`check` raises an error if nothing can be written now. It is called while a batch takes long. If it fails,
        nobody waits for that batch any more, and until the batch ends, other callers are refused with the same error."""
        self._check = check
        self._writing: _Batch[T, R] | None = None
        self._stuck: Exception | None = None
        self._write = write
        self._weigh = weigh
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._queue: deque[tuple[T, Weight, asyncio.Future[R]]] = deque()
        self.waiting = _NOTHING
        """The total weight of the items that are not yet in a batch."""
        self._task: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """Wait until the batch with this item has been written, and return the item's result."""
        weight = self._weigh(item)
        if self._stuck is not None:
            raise _again(self._stuck)
        if self._queue and not self.waiting.plus(weight).within(self._queue_max):
            raise Overloaded(
                f"{self.waiting.events} events of {self.waiting.size} bytes are waiting to be stored, "
                "which is the maximum; send this again in a moment"
            )
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queue.append((item, weight, future))
        self.waiting = self.waiting.plus(weight)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())
        return await future

    async def _write_all(self) -> None:
        try:
            while self._queue:
                await self._write_batch(self._next_batch())
        finally:
            self._task = None

    def _next_batch(self) -> _Batch[T, R]:
        batch: _Batch[T, R] = []
        total = _NOTHING
        while self._queue and (not batch or total.plus(self._queue[0][1]).within(self._batch_max)):
            item, weight, future = self._queue.popleft()
            batch.append((item, future))
            total = total.plus(weight)
        self.waiting = self.waiting.minus(total)
        return batch

    async def _write_batch(self, batch: _Batch[T, R]) -> None:
        results: Sequence[R | Exception]
        self._writing = batch
        timer = self._check and asyncio.get_running_loop().call_later(_LONG_SECONDS, self._suspect, batch, self._check)
        try:
            results = await self._write([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001  raised for every caller of the batch
            results = [error] * len(batch)
        finally:
            self._writing = self._stuck = None
            if timer is not None:
                timer.cancel()
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue  # the caller was cancelled; the write is not undone
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _suspect(self, batch: _Batch[T, R], check: Callable[[], Awaitable[object]]) -> None:
        self._suspicion = asyncio.create_task(self._judge(batch, check))

    async def _judge(self, batch: _Batch[T, R], check: Callable[[], Awaitable[object]]) -> None:
        """Check again and again, as long as this batch is being written."""
        while self._writing is batch:
            error: Exception | None = None
            try:
                await check()
            except Exception as failed:  # noqa: BLE001  raised for the callers
                error = failed
            if self._writing is batch:
                self._stuck = error
                if error is not None:
                    self._let_go(batch, error)
            await asyncio.sleep(_LONG_SECONDS)

    def _let_go(self, batch: _Batch[T, R], error: Exception) -> None:
        """Answer everybody who waits. The batch is not undone; the items in the queue are not written."""
        for future in (*(future for _, future in batch), *(future for *_, future in self._queue)):
            if not future.done():
                future.set_exception(_again(error))
        self._queue.clear()
        self.waiting = _NOTHING


_Batch: TypeAlias = list[tuple[T, "asyncio.Future[R]"]]
_LONG_SECONDS = 1.0
"""How long a batch may take before it is checked whether anything can be written at all."""


def _again(error: Exception) -> Exception:
    """A new error like this one: each caller adds its own traceback to the one that it raises."""
    return type(error)(*error.args)


class Shared:
    """Concurrent callers that need the same query share one execution.

    A caller that arrives while the query is running waits for the next execution and shares it with all other waiting
    callers. So no caller gets the result of a query that started before its call, and a caller that has just changed
    something sees the change.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Any]] = {}
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    async def ask(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        task = self._next.get(question)
        if task is None:
            task = self._next[question] = asyncio.create_task(self._in_turn(question, ask))
        answer: T = await asyncio.shield(task)  # if one caller is cancelled, the others still get the answer
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
