"""Places that several organizations share: whoever is slow can take some of them, never all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary


class SharedPlaces:
    def __init__(self, most: int, of_one: int, patience_seconds: float) -> None:
        """So many at once, so many of them of one owner; who gets none waits for so long."""
        self._of_one = of_one
        self._patience_seconds = patience_seconds
        self._all = asyncio.Semaphore(most)
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Only of those who have a place or wait for one."""

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[bool]:
        """A place until the block ends, and True; False where none was to be had."""
        own = self._own.setdefault(owner, asyncio.Semaphore(self._of_one))
        async with AsyncExitStack() as held:
            yield await self._take(held, own)

    async def _take(self, held: AsyncExitStack, own: asyncio.Semaphore) -> bool:
        """The owner's own first: who has had his share must not stand in the way of others."""
        try:
            async with asyncio.timeout(self._patience_seconds):
                await held.enter_async_context(own)
                await held.enter_async_context(self._all)
        except TimeoutError:
            return False
        return True
