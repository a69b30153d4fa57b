"""How one description of a route becomes a method of both clients.

A group of verbs (`client.endpoints`, `client.dead_letters`) is written once. Bound to a blocking runner its methods
return what the route gives; bound to an asyncio runner they return an awaitable of it. Types follow.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from doorstep.client.call import Call, Page, Retrying, perform
from doorstep.client.steps import Steps

P = ParamSpec("P")
T = TypeVar("T")


class BlockingRunner(Protocol):
    """Carries out steps and returns when they are done."""

    retrying: Retrying

    def run(self, steps: Steps[T], /) -> T: ...

    def each(self, first: Call[Page[T]], /) -> Iterator[T]: ...


class AsyncRunner(Protocol):
    """Carries out steps while other tasks go on."""

    retrying: Retrying

    async def run(self, steps: Steps[T], /) -> T: ...

    def each(self, first: Call[Page[T]], /) -> AsyncIterator[T]: ...


R_co = TypeVar("R_co", bound=BlockingRunner | AsyncRunner, covariant=True)


class Group(Generic[R_co]):
    """Verbs that belong together, bound to what carries them out."""

    def __init__(self, runner: R_co) -> None:
        self._runner = runner

    def _perform(self, call: Call[T]) -> Steps[T]:
        """For verbs that take several calls."""
        return perform(call, self._runner.retrying)


class Verb(Generic[P, T]):
    """A method of a group, in both ways of running it."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]], described: Callable[..., Any]) -> None:
        self._steps = steps
        self.described = described
        functools.update_wrapper(self, described)  # type: ignore[arg-type]

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: Group[BlockingRunner], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: Group[AsyncRunner], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        if group is None:
            return self
        runner = group._runner

        @functools.wraps(self.described.__get__(group))
        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            return runner.run(self._steps(group, *args, **kwargs))

        return run


class Each(Generic[P, T]):
    """A method that goes through a whole list, page by page as it is needed."""

    def __init__(self, page: Callable[Concatenate[Any, P], Call[Page[T]]]) -> None:
        self.described = page
        functools.update_wrapper(self, page)  # type: ignore[arg-type]
        self.__doc__ = "All of them, fetched page by page as they are needed; `limit` is the size of a page."

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: Group[BlockingRunner], owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, group: Group[AsyncRunner], owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        if group is None:
            return self

        @functools.wraps(self.described.__get__(group))
        def each(*args: P.args, **kwargs: P.kwargs) -> Any:
            return group._runner.each(self.described(group, *args, **kwargs))

        each.__doc__ = self.__doc__
        return each


def verb(describe: Callable[Concatenate[Any, P], Call[T]]) -> Verb[P, T]:
    """A verb that is one call."""

    def steps(group: Group[Any], /, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        return group._perform(describe(group, *args, **kwargs))

    return Verb(steps, describe)


def flow(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Verb[P, T]:
    """A verb that takes several calls, and pauses."""
    return Verb(steps, steps)


def each_of(page: Verb[P, Page[T]]) -> Each[P, T]:
    """The verb that follows the cursors of a verb that gives one page."""
    return Each(page.described)
