"""The DeadLetterNotifier: calls the program's own functions with the dead letters that this process produced.

Best effort: it receives dead letters as facts, keeps them in memory, and calls each function once per dead letter. If
the process ends first, the calls are lost, but the dead letters are in the store.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from doorstep.clock import Clock, from_iso, to_datetime
from doorstep.engine.directory import Directory
from doorstep.errors import NotFound, StoreError
from doorstep.model.delivery import DeadLetter, Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint
from doorstep.stores.store import Store
from doorstep.telemetry.facts import DeliveryTransition, Fact, Telemetry
from doorstep.telemetry.redaction import safe_message, traceback_of
from doorstep.transports.threads import DaemonThreads

DeadLetterCallback = Callable[[DeadLetter], object] | Callable[[DeadLetter], Awaitable[object]]
"""A plain or async function of one argument; its return value is ignored."""

_QUEUE_MAX = 10_000
_CALLBACK_SECONDS_MAX = 30.0
_FLUSH_SECONDS = 2.0
_THREADS_MAX = 4


class DeadLetterNotifier:
    """Queues the dead letters found among the facts, and calls the callbacks one after another."""

    name = "dead letter notifier"

    def __init__(
        self,
        callbacks: Sequence[DeadLetterCallback],
        store: Store,
        directory: Directory,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        """Callbacks may be added to `callbacks` while the notifier runs."""
        self._callbacks = callbacks
        self._store = store
        self._directory = directory
        self._clock = clock
        self._telemetry = telemetry
        self._queue: deque[DeliveryTransition] = deque()
        self._dropped = 0
        """The number of dead letters that did not fit into the queue."""
        self._threads = DaemonThreads(_THREADS_MAX)
        self.wake = asyncio.Event()

    def on_facts(self, facts: Sequence[Fact]) -> None:
        """A telemetry subscriber. Queues the dead letters among the facts."""
        dead = [one for one in facts if isinstance(one, DeliveryTransition) and one.new_state == DeliveryState.DEAD]
        if dead:
            room = max(0, _QUEUE_MAX - len(self._queue))
            self._queue.extend(dead[:room])
            self._dropped += len(dead[room:])
            self.wake.set()

    async def run_once(self) -> float | None:
        """Call the callbacks for everything in the queue. If the store is down, dead letters stay in the queue."""
        self._warn_of_dropped()
        while self._queue:
            if dead_letter := await self._next():
                for callback in tuple(self._callbacks):
                    await self._call(callback, dead_letter)
        return None

    async def flush(self) -> None:
        """Call the callbacks for the last dead letters, for at most two seconds. Errors do not delay a shutdown."""
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self.run_once()
        except (TimeoutError, StoreError) as error:
            self._warn(
                f"dead letters that no callback received: {len(self._queue)} ({type(error).__name__} at shutdown)"
            )
        finally:
            self._threads.close()

    def _warn_of_dropped(self) -> None:
        count, self._dropped = self._dropped, 0
        if count:
            self._warn(f"dead letters that no callback received: {count} ({_QUEUE_MAX} others were waiting)")

    def _warn(self, message: str) -> None:
        self._telemetry.note(self._clock.now(), "warning", message)

    async def _next(self) -> DeadLetter | None:
        """The next dead letter, or None if it was deleted. It is removed from the queue before the store is read,
        because the queue may change during the read. If the read fails, it is put back."""
        transition = self._queue.popleft()
        try:
            return await self._dead_letter(transition)
        except BaseException:
            self._queue.appendleft(transition)
            raise

    async def _dead_letter(self, transition: DeliveryTransition) -> DeadLetter | None:
        org_id, endpoint_id = transition.org_id, transition.endpoint_id
        try:
            delivery = await self._store.get(Delivery, org_id, transition.delivery_id)
            endpoint = self._directory.endpoint(endpoint_id)
            if endpoint is None:
                endpoint = await self._store.get(Endpoint, org_id, endpoint_id)
        except NotFound:
            return None  # deleted in the meantime
        return DeadLetter(
            delivery_id=transition.delivery_id,
            event_id=transition.event_id,
            event_type=delivery.event_type,
            endpoint=endpoint.name,
            code=delivery.code or "",
            reason=delivery.reason or "",
            attempts=transition.attempt,
            org_id=org_id,
            at=to_datetime(from_iso(transition.at)),
        )

    # -- calling -------------------------------------------------------------------------------------------

    async def _call(self, callback: DeadLetterCallback, dead_letter: DeadLetter) -> None:
        call = asyncio.ensure_future(self._error_of(callback, dead_letter))
        try:
            await asyncio.wait({call}, timeout=_CALLBACK_SECONDS_MAX)
        finally:
            call.cancel()  # no effect if it has ended
        error = call.result() if call.done() else TimeoutError(f"it did not return within {_CALLBACK_SECONDS_MAX:g} s")
        if error:
            name = getattr(callback, "__qualname__", repr(callback))
            # `safe_message`: the exception's text may quote the dead letter.
            message = f"the dead-letter callback {name} failed: {safe_message(error)}"
            fields = {"delivery_id": str(dead_letter.delivery_id), "traceback": traceback_of(error)}
            self._telemetry.note(self._clock.now(), "error", message, **fields)

    async def _error_of(self, callback: DeadLetterCallback, dead_letter: DeadLetter) -> BaseException | None:
        """The error, or None. No exception is propagated, not even SystemExit."""
        try:
            if inspect.iscoroutinefunction(callback):
                await callback(dead_letter)
            else:
                await self._call_in_thread(lambda: callback(dead_letter))
        except BaseException as error:  # noqa: BLE001
            return error
        return None

    async def _call_in_thread(self, call: Callable[[], object]) -> None:
        """Make the call in a thread and wait for its result. If the wait is cancelled, the thread is abandoned."""
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


def _outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except BaseException as error:  # noqa: BLE001  even SystemExit, which would end the thread silently
        return error


def _resolve(ended: asyncio.Future[object], result: object) -> None:
    if not ended.done():
        ended.set_result(result)
