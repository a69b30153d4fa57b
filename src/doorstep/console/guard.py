"""How every page is entered: a session first, then permission, then proof that the form is ours; errors become pages."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from doorstep.console.fields import Fields
from doorstep.console.page import Page
from doorstep.console.problems import Problem, guarded, shown, told
from doorstep.console.request import SESSION_COOKIE, PageRequest, is_secure, whole_path
from doorstep.console.sessions import Session, Sessions
from doorstep.errors import InvalidInput
from doorstep.model.org import ONLY_DEFAULT_ORG, refusal_of

if TYPE_CHECKING:
    from doorstep.app import Doorstep

SIGN_IN = "/console/sign-in"
FORM_BYTES_MAX = 64 * 1024
"""Of a form without a payload."""
_FORM_BYTES_SPARE = 4 * 1024 * 1024
"""A payload in a form takes up to three times its bytes. Laid out it may take this much more, a megabyte of which is
room for what is typed: a payload that became too large comes back to the one who typed it, with that sentence."""
_STALE = "this form is from an earlier session; look at the page again, and repeat what you did"


class Guard:
    """Makes a Starlette route of a page."""

    def __init__(self, doorstep: Doorstep, sessions: Sessions) -> None:
        self._doorstep = doorstep
        self._sessions = sessions
        self._form_bytes_max = 3 * doorstep.settings.payload_bytes_max + _FORM_BYTES_SPARE

    def route(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visitor = await self._sessions.visitor(request.cookies.get(SESSION_COOKIE, ""))
            if visitor is None:
                return _to_sign_in(request)
            return self._kept_on(await self._entered(page, visitor, request), visitor, request)

        return guarded(answer)

    async def _entered(self, page: Page, visitor: Session, request: Request) -> Response:
        visit = PageRequest(self._doorstep, self._sessions, visitor, request, Fields(()))
        try:
            if refusal := refusal_of(visitor.key.role, page.permission):
                return shown(visit, Problem(403, "You may not do that", refusal))
            if page.default_org and not visit.in_default_org:
                return shown(visit, Problem(403, "You may not do that", ONLY_DEFAULT_ORG))
            if page.method == "POST":
                visit.form = await self.form(request)
                if not _is_ours(request, visit.form, visitor):
                    return shown(visit, Problem(403, "Nothing was done", _STALE))
            return await page.answer(visit)
        except Exception as error:  # noqa: BLE001  whatever a page did not foresee
            return told(visit, error)

    async def form(self, request: Request, bytes_max: int | None = None) -> Fields:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > (bytes_max or self._form_bytes_max):
                raise InvalidInput("form", "is too large")
        try:
            return Fields(parse_qsl(body.decode(), keep_blank_values=False, errors="strict", max_num_fields=5_000))
        except ValueError:  # not UTF-8, or too many fields
            raise InvalidInput("form", "cannot be read") from None

    def _kept_on(self, response: Response, visitor: Session, request: Request) -> Response:
        if visitor.renewed is not None:
            set_session(response, visitor.renewed, request)
        return response


def set_session(response: Response, cookie: str, request: Request) -> None:
    """Scripts cannot read it, other sites cannot send forms with it."""
    secure = is_secure(request)
    response.set_cookie(SESSION_COOKIE, cookie, path="/console", httponly=True, samesite="lax", secure=secure)


def is_from_here(request: Request) -> bool:
    """Whether a form was sent by a page of this very server, as far as the browser tells."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def is_led_by_nobody(request: Request) -> bool:
    """Whether somebody opened this address themselves, as the browser says. Over plain http most say nothing."""
    return request.headers.get("sec-fetch-site") in ("same-origin", "none")


def _is_ours(request: Request, form: Fields, visitor: Session) -> bool:
    given = form.raw("csrf") or ""
    return is_from_here(request) and hmac.compare_digest(given.encode(), visitor.csrf.encode())


def _to_sign_in(request: Request) -> Response:
    """A page that refreshes itself is told to go there as a whole."""
    place = f"{SIGN_IN}?next={quote(whole_path(request))}" if request.method == "GET" else SIGN_IN
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": place})
    return RedirectResponse(place, 303)
