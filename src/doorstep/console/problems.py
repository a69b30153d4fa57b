"""What went wrong, as a page: for whoever is signed in, and for whoever could not even be asked who they are."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from doorstep.console.rendering import rendered
from doorstep.console.request import HOME, PageRequest, html, whole_path
from doorstep.errors import Conflict, DoorstepError, InvalidInput, NotFound, Overloaded, StoreUnavailable

_LATER = "nothing is lost; what was accepted is delivered when it is back"
_OURS = "the log says more about it"
_log = logging.getLogger("doorstep.console")


class Problem(NamedTuple):
    """An error in words."""

    status: int
    title: str
    detail: str
    passing: bool = False
    """Whether it may be gone when one tries again."""


def problem_of(error: Exception) -> Problem:
    match error:
        case NotFound():
            return Problem(404, "Not found", str(error))
        case InvalidInput():
            return Problem(422, "This cannot be used", str(error))
        case Overloaded():
            return Problem(429, "Too much was asked at once", str(error), passing=True)
        case StoreUnavailable():
            return Problem(503, "The store cannot be reached", _LATER, passing=True)
        case DoorstepError():
            return Problem(409, "That is not possible now", str(error))
    return Problem(500, "Doorstep made a mistake", _OURS, passing=True)


def told(visit: PageRequest, error: Exception) -> Response:
    """An act that was refused leads back to where it was asked for, with the reason; else the reason is the page."""
    if visit.acting and isinstance(error, Conflict | InvalidInput | Overloaded):
        return visit.refused(str(error))
    _log_mistake(visit.request, error)
    if isinstance(error, InvalidInput):
        problem = Problem(422, "This filter cannot be used", str(error))
        return shown(visit, problem, clear=visit.path)
    return shown(visit, problem_of(error))


def shown(visit: PageRequest, problem: Problem, **context: object) -> Response:
    """A form cannot be sent again by a link: who sent one is led back to where it was."""
    return visit.page(
        "problem.html",
        problem.status,
        problem=problem,
        correlation_id=visit.correlation_id,
        again=None if visit.acting else visit.url,
        back=visit.back,
        **context,
    )


def guarded(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The same, with a page for whatever goes wrong before anybody knows who is asking, as with the store away."""

    async def guarded(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:  # noqa: BLE001  whatever the entrance did not foresee
            _log_mistake(request, error)
            return _to_a_stranger(request, problem_of(error))

    return guarded


def unsigned(template: str, status: int = 200, **context: object) -> Response:
    """A page for somebody who is not signed in."""
    return html(rendered(template, visit=None, **context), status)


def _to_a_stranger(request: Request, problem: Problem) -> Response:
    """Without the menu, and without anything that only those may know who are signed in."""
    return unsigned(
        "problem.html",
        problem.status,
        problem=problem,
        correlation_id=request.scope["correlation_id"],
        again=whole_path(request) if request.method == "GET" else None,
        back=HOME,
    )


def _log_mistake(request: Request, error: Exception) -> None:
    """What we made no words for is our mistake."""
    if not isinstance(error, DoorstepError):
        extra = {"correlation_id": request.scope["correlation_id"]}
        _log.error("a page failed", extra=extra, exc_info=error)
