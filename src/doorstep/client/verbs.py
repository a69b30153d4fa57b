"""Turns one description of a route into a method of both clients.

A group of methods (`client.endpoints`, `client.dead_letters`) is written once. Bound to a blocking runner, its methods
return the result; bound to an asyncio runner, they return an awaitable. The type annotations reflect this.

Everything that takes more than one request (retries, waiting, lists) is a generator of steps: it yields requests and
pauses, and receives their results. It does no I/O; the runners execute the steps.
"""

from __future__ import annotations

import functools
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar, overload

from doorstep.client.call import Call, Page, Silence
from doorstep.client.errors import Answer, TimedOut

if TYPE_CHECKING:
    from doorstep.client import Asynchronous, Blocking

P = ParamSpec("P")
T = TypeVar("T")


# -- steps -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause. The runner replies with the time at which the pause ended, in seconds on a monotonic clock."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call of the caller's own function, which may be a coroutine function for an asyncio runner. The runner replies
    with the exception that the function raised, or None."""

    function: Callable[[], object]

    def run(self) -> Exception | None:
        try:
            self.function()
        except Exception as error:  # noqa: BLE001 (the consumer decides what an error means)
            return error
        return None

    async def run_async(self) -> Exception | None:
        try:
            result = self.function()
            if isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 (as above)
            return error
        return None


Step: TypeAlias = Call[Any] | Pause | Invoke
Reply: TypeAlias = Answer | Silence | float | Exception | None
Steps: TypeAlias = Generator[Step, Reply, T]


def exchange(call: Call[Any]) -> Steps[Answer | Silence]:
    """Send the request of a call and return the response."""
    reply = yield call
    if not isinstance(reply, Answer | Silence):
        raise TypeError(f"the reply to a request is an answer or silence, got {reply!r}")
    return reply


def pause(seconds: float) -> Steps[float]:
    """Pause, and return the time at which the pause ended, in seconds on a monotonic clock."""
    reply = yield Pause(seconds)
    if not isinstance(reply, float):
        raise TypeError(f"the reply to a pause is the time, got {reply!r}")
    return reply


def invoke(function: Callable[[], object]) -> Steps[Exception | None]:
    """Call a function. Returns the exception that it raised, if any."""
    reply = yield Invoke(function)
    return reply if isinstance(reply, Exception) else None


# -- retries and waiting -----------------------------------------------------------------------------------

_TRANSIENT = frozenset({429, 502, 503, 504})
"""The HTTP statuses of temporary errors, which the request itself did not cause."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """How many times a call is tried, and how long to pause between tries.

    Each pause is twice as long as the previous one, and at least as long as Retry-After, up to `longest_pause_seconds`.
    Only calls that are safe to send twice are repeated: reads, PUT requests, and sending events, which carry an
    idempotency key.
    """

    tries_max: int = 5
    first_pause_seconds: float = 0.25
    longest_pause_seconds: float = 30.0
    random: Callable[[], float] = random.random

    def pauses(self) -> Iterator[float]:
        """One pause after each try except the last, with jitter so that many clients do not retry at the same time."""
        for number in range(self.tries_max - 1):
            yield self.first_pause_seconds * 2**number * (1 + self.random()) / 2


USUAL = Retrying()
NEVER = Retrying(tries_max=1)
"""Send every request once."""


def perform(call: Call[T], retrying: Retrying) -> Steps[T]:
    """Send a call, repeat it if needed, and return its result."""
    reply = yield from exchange(call)
    if call.repeatable:
        for seconds in retrying.pauses():
            if not _is_transient(reply):
                break
            yield from pause(min(max(seconds, _retry_after(reply)), retrying.longest_pause_seconds))
            reply = yield from exchange(call)
    return call.read(reply)


def _is_transient(reply: Answer | Silence) -> bool:
    return isinstance(reply, Silence) or reply.status in _TRANSIENT


def _retry_after(reply: Answer | Silence) -> float:
    return 0.0 if isinstance(reply, Silence) else reply.retry_after_seconds or 0.0


_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_GROWTH = 1.5


def until(poll: Callable[[], Steps[T]], done: Callable[[T], bool], timeout: float, subject: str) -> Steps[T]:
    """Poll at least once, until `done` returns True. Polls are frequent at first, then two seconds apart."""
    now = yield from pause(0.0)
    deadline, seconds = now + timeout, _FIRST_PAUSE_SECONDS
    while True:
        seen = yield from poll()
        if done(seen):
            return seen
        # A poll takes time too, so read the clock again before choosing the length of the pause.
        now = yield from pause(0.0)
        if now >= deadline:
            raise TimedOut(f"{subject} was not done within {timeout:g} s", seen)
        yield from pause(min(seconds, deadline - now))
        seconds = min(seconds * _GROWTH, _LONGEST_PAUSE_SECONDS)


# -- methods -----------------------------------------------------------------------------------------------


R_co = TypeVar("R_co", bound="Blocking | Asynchronous", covariant=True)


class Group(Generic[R_co]):
    """A group of related methods, bound to a runner."""

    def __init__(self, runner: R_co) -> None:
        self._runner = runner

    def _perform(self, call: Call[T]) -> Steps[T]:
        """The steps of one call, for methods that make several calls."""
        return perform(call, self._runner.retrying)


class Verb(Generic[P, T]):
    """A method of a group. It is blocking or async, depending on the runner."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]], described: Callable[..., Any]) -> None:
        self._steps = steps
        self.described = described
        functools.update_wrapper(self, described)  # type: ignore[arg-type]

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: Group[Blocking], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: Group[Asynchronous], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        if group is None:
            return self
        runner = group._runner

        @functools.wraps(self.described.__get__(group))
        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            return runner.run(self._steps(group, *args, **kwargs))

        return run


class Each(Generic[P, T]):
    """A method that iterates over a whole list and fetches pages as needed."""

    def __init__(self, page: Callable[Concatenate[Any, P], Call[Page[T]]]) -> None:
        self.described = page
        functools.update_wrapper(self, page)  # type: ignore[arg-type]
        self.__doc__ = "Iterate over all items of the list. Pages are fetched as needed; `limit` is the page size."

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: Group[Blocking], owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, group: Group[Asynchronous], owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        if group is None:
            return self

        @functools.wraps(self.described.__get__(group))
        def each(*args: P.args, **kwargs: P.kwargs) -> Any:
            return group._runner.each(self.described(group, *args, **kwargs))

        each.__doc__ = self.__doc__
        return each


def verb(describe: Callable[Concatenate[Any, P], Call[T]]) -> Verb[P, T]:
    """A method that makes one call."""

    def steps(group: Group[Any], /, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        return group._perform(describe(group, *args, **kwargs))

    return Verb(steps, describe)


def flow(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Verb[P, T]:
    """A method that makes several calls, with pauses."""
    return Verb(steps, steps)


def each_of(page: Verb[P, Page[T]]) -> Each[P, T]:
    """A method that iterates over all items of a list, made from the method that returns one page."""
    return Each(page.described)
