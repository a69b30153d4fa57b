"""Deliveries to Python functions: the same tries, deadlines and replies as over HTTP.

Async handlers run as tasks of the event loop, plain ones in threads. Python cannot stop a function that hangs: past
its deadline it is reported as a timeout and left behind, and whatever it does later is no longer looked at.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from doorstep.clock import Clock, Instant
from doorstep.model.claim import Claim
from doorstep.model.noun import Noun
from doorstep.model.outcome import Code, Failure, Reply
from doorstep.wire.daemon_threads import DaemonThreads, Job
from doorstep.wire.handler_replies import body_of, failure_of
from doorstep.wire.transport import Done, Transmission

_FAREWELL_SECONDS = 1.0
"""How long cancelled async handlers may take to clean up when the transport closes."""


class Received(Noun, frozen=True, kw_only=True):
    """What a handler is given: one delivery of one event. The same event may come again."""

    event_id: UUID
    """The same for all attempts: what to recognise a repetition by."""
    delivery_id: UUID
    event_type: str
    payload: bytes
    attempt: int
    retry_attempts: int
    correlation_id: str
    accepted_at: Instant

    def json(self) -> Any:
        """The payload, decoded."""
        return msgspec.json.decode(self.payload)


Handler = Callable[[Received], object] | Callable[[Received], Awaitable[object]]
"""A plain or async function of one argument. To return is success; see `Transient` and `Permanent` for the rest."""


class HandlerTransport:
    """A `Transport` to registered functions."""

    def __init__(
        self, clock: Clock, handlers: Mapping[str, Handler], threads_max: int = 512, body_bytes_max: int = 16_384
    ) -> None:
        """`handlers` are the functions by the names that endpoints refer to; it may grow while the transport runs."""
        self._clock = clock
        self._handlers = handlers
        self._threads_max = threads_max
        self._body_bytes_max = body_bytes_max
        self._calls: set[_Call] = set()
        self._replies: list[tuple[Transmission, Reply]] = []
        self._threads = DaemonThreads(threads_max)

    @property
    def stuck_threads(self) -> int:
        """Threads left behind in handlers that have not returned; they end when their handler does."""
        return self._threads.given_up

    # -- Transport -----------------------------------------------------------------------------------------

    def open(self, done: Done) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self._threads = DaemonThreads(self._threads_max)

    def serves(self, target: str) -> bool:
        return target in self._handlers

    def start(self, transmissions: Sequence[Transmission]) -> None:
        for transmission in transmissions:
            call = _Call(transmission, self._clock.now())
            self._calls.add(call)
            function = self._handlers.get(transmission.target)
            if function is None:
                self._end(call, failure=_unknown(transmission.target))
            else:
                call.timer = self._loop.call_later(transmission.timeout_seconds, self._time_out, call)
                self._begin(call, function)

    async def close(self) -> None:
        calls, self._calls = self._calls, set()
        self._replies.clear()
        for call in calls:
            call.leave()
            self._give_up(call)
        self._threads.close()
        if tasks := [call.task for call in calls if call.task is not None]:
            await asyncio.wait(tasks, timeout=_FAREWELL_SECONDS)

    # -- running -------------------------------------------------------------------------------------------

    def _begin(self, call: _Call, function: Handler) -> None:
        if _is_async(function):
            call.task = self._loop.create_task(self._await(call, function))
        else:
            call.job = self._threads.submit(lambda: self._run_in_thread(call, function))

    async def _await(self, call: _Call, function: Callable[[Received], Any]) -> None:
        try:
            result = await function(_received(call.transmission.claim))
        except BaseException as error:  # noqa: BLE001  SystemExit too: it costs the attempt, not the process
            self._end(call, error=error)
        else:
            self._end(call, result=result)

    def _run_in_thread(self, call: _Call, function: Handler) -> None:
        if call.ended:
            return
        call.started_at = self._clock.now()
        result, error = None, None
        try:
            result = function(_received(call.transmission.claim))
        except BaseException as raised:  # noqa: BLE001  as above
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._returned, call, result, error)
        except RuntimeError:
            pass  # the event loop has closed meanwhile: nobody waits for the result

    def _returned(self, call: _Call, result: object, error: BaseException | None) -> None:
        """Back from a thread. A plain function that returned an awaitable has only begun."""
        if error is None and inspect.isawaitable(result) and not call.ended:
            call.job, call.task = None, self._loop.create_task(self._await(call, lambda _: result))
        else:
            self._end(call, result=result, error=error)

    def _time_out(self, call: _Call) -> None:
        begun = call.begun
        self._give_up(call)
        message = f"The handler did not return within {call.transmission.timeout_seconds:g} s."
        detail = "" if begun else f"no thread became free; {self.stuck_threads} are stuck in handlers that hang"
        self._end(call, failure=Failure(Code.TIMEOUT, message, detail=detail))

    def _give_up(self, call: _Call) -> None:
        if call.task is not None:
            call.task.cancel()
        if call.job is not None:
            self._threads.give_up(call.job)

    # -- ending --------------------------------------------------------------------------------------------

    def _end(
        self, call: _Call, result: object = None, error: BaseException | None = None, failure: Failure | None = None
    ) -> None:
        """Report a call once; whatever comes after its deadline, or after `close`, is dropped."""
        if call not in self._calls:
            return
        self._calls.discard(call)
        call.leave()
        if error is not None:
            failure = failure_of(error, call.transmission.claim.payload)
        if not self._replies:
            self._loop.call_soon(self._hand_over)
        self._replies.append((call.transmission, self._reply(call, result, failure)))

    def _reply(self, call: _Call, result: object, failure: Failure | None) -> Reply:
        return Reply(
            started_at=call.started_at,
            finished_at=self._clock.now(),
            request_headers=call.transmission.logged_headers,
            body=b"" if failure else body_of(result, self._body_bytes_max),
            failure=failure,
        )

    def _hand_over(self) -> None:
        replies, self._replies = self._replies, []
        if replies:
            self._done(replies)


class _Call:
    """One try under way, as a task or as a job in a thread."""

    __slots__ = ("ended", "job", "started_at", "task", "timer", "transmission")

    def __init__(self, transmission: Transmission, now: Instant) -> None:
        self.transmission = transmission
        self.started_at = now
        self.ended = False
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.job: Job | None = None

    @property
    def begun(self) -> bool:
        return self.job is None or self.job.seat is not None

    def leave(self) -> None:
        """Nobody waits any more."""
        self.ended = True
        if self.timer is not None:
            self.timer.cancel()


def _received(claim: Claim) -> Received:
    return Received(
        event_id=claim.event_id,
        delivery_id=claim.delivery_id,
        event_type=claim.event_type,
        payload=claim.payload,
        attempt=claim.attempt,
        retry_attempts=claim.retry_attempts,
        correlation_id=claim.correlation_id,
        accepted_at=claim.accepted_at,
    )


def _is_async(function: Handler) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _unknown(name: str) -> Failure:
    return Failure(Code.NO_HANDLER, f"No handler named {name!r} is registered in this worker.")
