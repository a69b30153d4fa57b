"""The DeadLetterNotifier: calls the program's own functions with the dead letters that this process made.

Best effort: it hears of a death as a fact, keeps it in memory, and tells each function once. A process that ends
before that has told nobody; the dead letter itself is in the store all the same.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from doorstep.clock import Clock, from_iso, to_iso
from doorstep.engine.directory import Directory
from doorstep.errors import NotFound, StoreError
from doorstep.model.delivery import DeadLetter, DeliveryState
from doorstep.stores.store import Store
from doorstep.telemetry.facts import DeliveryTransition, Fact, Notice, Telemetry
from doorstep.transports.threads import DaemonThreads

DeadLetterCallback = Callable[[DeadLetter], object] | Callable[[DeadLetter], Awaitable[object]]
"""A plain or async function of one argument; what it returns is not looked at."""

_UNTOLD_MAX = 10_000
_PATIENCE_SECONDS = 30.0
_FLUSH_SECONDS = 2.0
_THREADS_MAX = 4


class DeadLetterNotifier:
    """Hears facts, and tells of those that are deaths, one after the other."""

    name = "herald"

    def __init__(
        self,
        callbacks: Sequence[DeadLetterCallback],
        store: Store,
        directory: Directory,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        """`callbacks` may grow while it runs."""
        self._callbacks = callbacks
        self._store = store
        self._directory = directory
        self._clock = clock
        self._telemetry = telemetry
        self._deaths: deque[DeliveryTransition] = deque()
        self._passed_over = 0
        """How many there was no room for."""
        self._threads = DaemonThreads(_THREADS_MAX)
        self.wake = asyncio.Event()

    def hear(self, facts: Sequence[Fact]) -> None:
        """A subscriber of the telemetry."""
        deaths = [one for one in facts if isinstance(one, DeliveryTransition) and one.new_state == DeliveryState.DEAD]
        if deaths:
            room = max(0, _UNTOLD_MAX - len(self._deaths))
            self._deaths.extend(deaths[:room])
            self._passed_over += len(deaths[room:])
            self.wake.set()

    async def run_once(self) -> float | None:
        """Tell of everything that was heard of. Forgotten only when told: the store may be away for a while."""
        self._admit_passed_over()
        while self._deaths:
            if letter := await self._next_letter():
                for callback in tuple(self._callbacks):
                    await self._tell(callback, letter)
        return None

    async def _next_letter(self) -> DeadLetter | None:
        """Taken out before anybody waits, or what is heard of meanwhile could move it; and put back if it cannot be told."""
        death = self._deaths.popleft()
        try:
            return await self._letter(death)
        except BaseException:
            self._deaths.appendleft(death)
            raise

    def _admit_passed_over(self) -> None:
        count, self._passed_over = self._passed_over, 0
        if count:
            message = f"{count} dead letters were told to nobody: {_UNTOLD_MAX} others were waiting to be told"
            self._telemetry.emit(Notice(at=to_iso(self._clock.now()), level="warning", message=message))

    async def flush(self) -> None:
        """Tell of what died in the last moment, if that can be done quickly; an end is not delayed by it, nor broken."""
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self.run_once()
        except (TimeoutError, StoreError) as error:
            message = f"{len(self._deaths)} dead letters were told to nobody: {type(error).__name__} at the end"
            self._telemetry.emit(Notice(at=to_iso(self._clock.now()), level="warning", message=message))
        finally:
            self._threads.close()

    async def _letter(self, death: DeliveryTransition) -> DeadLetter | None:
        try:
            delivery = await self._store.delivery(death.org_id, death.delivery_id)
            endpoint = self._directory.endpoint(death.endpoint_id) or await self._store.endpoint(
                death.org_id, death.endpoint_id
            )
        except NotFound:
            return None  # deleted since
        return DeadLetter(
            delivery_id=death.delivery_id,
            event_id=death.event_id,
            event_type=delivery.event_type,
            endpoint=endpoint.name,
            code=delivery.code or "",
            reason=delivery.reason or "",
            attempts=death.attempt,
            org_id=death.org_id,
            at=from_iso(death.at),
        )

    async def _tell(self, callback: DeadLetterCallback, letter: DeadLetter) -> None:
        telling = asyncio.ensure_future(self._trouble_of(callback, letter))
        try:
            await asyncio.wait({telling}, timeout=_PATIENCE_SECONDS)
        finally:
            telling.cancel()  # no effect where it has ended
        trouble = telling.result() if telling.done() else f"it did not return within {_PATIENCE_SECONDS:g} s"
        if trouble:
            self._complain(callback, trouble, letter)

    async def _trouble_of(self, callback: DeadLetterCallback, letter: DeadLetter) -> str | None:
        """Whatever it raises is a line in the log and nothing more, SystemExit too."""
        try:
            if inspect.iscoroutinefunction(callback):
                await callback(letter)
            else:
                await self._in_thread(lambda: callback(letter))
        except BaseException as error:  # noqa: BLE001
            return f"it raised {type(error).__name__}"  # its text may quote the dead letter
        return None

    async def _in_thread(self, call: Callable[[], object]) -> None:
        """To its end; if that never comes the thread is given up."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[object] = loop.create_future()
        job = self._threads.call(lambda: _outcome(call), lambda outcome: _resolve(ended, outcome), loop)
        try:
            result = await ended
        except asyncio.CancelledError:
            self._threads.give_up(job)
            raise
        if isinstance(result, BaseException):
            raise result
        if inspect.isawaitable(result):
            await result

    def _complain(self, callback: DeadLetterCallback, trouble: str, letter: DeadLetter) -> None:
        name = getattr(callback, "__qualname__", repr(callback))
        message = f"{name} was told of a dead letter and failed: {trouble}"
        fields: dict[str, object] = {"delivery_id": str(letter.delivery_id)}
        self._telemetry.emit(Notice(at=to_iso(self._clock.now()), level="error", message=message, fields=fields))


def _outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except BaseException as error:  # noqa: BLE001  SystemExit too: it must not end the thread unheard
        return error


def _resolve(ended: asyncio.Future[object], result: object) -> None:
    if not ended.done():
        ended.set_result(result)
