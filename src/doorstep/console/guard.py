"""Checks every request for a console page: is there a session, is the action permitted, and was a form sent by a page
of this session? This module also signs users in, with a key or a one-time link, and shows errors as pages.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from doorstep.console.badges import badges_of
from doorstep.console.fields import Fields
from doorstep.console.outcomes import current_flash
from doorstep.console.rendering import rendered
from doorstep.console.request import HOME, SESSION_COOKIE, Page, PageRequest, html, inside, is_secure, path_and_query
from doorstep.console.sessions import Session, Sessions, SignInLinks
from doorstep.errors import Conflict, DoorstepError, InvalidInput, NotFound, NotOffered, Overloaded, StoreUnavailable
from doorstep.model.org import NOT_FOR_USERS, ONLY_DEFAULT_ORG, ApiKey, Permission, permission_error

if TYPE_CHECKING:
    from doorstep.app import Doorstep

SIGN_IN = "/console/sign-in"
FORM_BYTES_MAX = 64 * 1024
"""The size limit of a form without a payload."""
_FORM_BYTES_SPARE = 4 * 1024 * 1024
"""The size limit of a form with a payload is three times the largest payload, because form encoding can triple its
size, plus this number of bytes. Most of them are for pretty-printing; one megabyte leaves room for edits: if a user
makes a payload too large, the form is shown again with an error, and the edit is not lost."""
_STALE = "this form is from an earlier session; reload the page and try again"
_FORBIDDEN = "Not allowed"
_UNKNOWN = "this key is unknown, has expired or was revoked"
_USED = "this link was used or is too old; sign in with a key, or get a new link: doorstep console"
_log = logging.getLogger("doorstep.console")

Route = Callable[[Request], Awaitable[Response]]


class Guard:
    """Turns a page into a Starlette route."""

    def __init__(self, doorstep: Doorstep) -> None:
        self.doorstep = doorstep
        self.sessions = Sessions(lambda: doorstep.components)
        self._form_bytes_max = 3 * doorstep.settings.payload_bytes_max + _FORM_BYTES_SPARE

    def route(self, page: Page) -> Route:
        async def answer(request: Request) -> Response:
            request.scope["doorstep.route"] = page.path
            session = await self.session(request)
            if session is None:
                return _to_sign_in(request)
            if (identified := request.scope.get("doorstep.identified")) is not None:
                identified()
            response = await self._enter(page, session, request)
            if session.renewed is not None:
                set_session(response, session.renewed, request)
            return response

        return with_error_page(answer)

    async def session(self, request: Request) -> Session | None:
        return await self.sessions.session(request.cookies.get(SESSION_COOKIE, ""))

    async def _enter(self, page: Page, session: Session, http: Request) -> Response:
        request = PageRequest(self.doorstep, self.sessions, session, http, Fields(()))
        try:
            if refusal := permission_error(session.key.role, page.permission):
                return show_problem(request, Problem(403, _FORBIDDEN, refusal))
            if page.default_org and not request.in_default_org:
                return show_problem(request, Problem(403, _FORBIDDEN, ONLY_DEFAULT_ORG))
            if page.method == "POST":
                request.form = await self.form(http)
                if not _is_ours(http, request.form, session):
                    return show_problem(request, Problem(403, "Nothing was changed", _STALE))
            request.badges = await badges_of(request.components, request.org_id)
            request.flash = await current_flash(request)
            return await page.answer(request)
        except Exception as error:  # noqa: BLE001  any error that the page did not handle
            return answer_error(request, error)

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


def set_session(response: Response, cookie: str, request: Request) -> None:
    """Set the session cookie. Scripts cannot read it, and browsers do not send it with forms from other sites."""
    secure = is_secure(request)
    response.set_cookie(SESSION_COOKIE, cookie, path=HOME, httponly=True, samesite="lax", secure=secure)


def is_same_origin(request: Request) -> bool:
    """Whether a page of this server sent the form, according to the headers that the browser adds. If these headers are
    missing, this is True."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def is_opened_by_user(request: Request) -> bool:
    """Whether the user opened this URL directly or from a page of this server, according to the browser's
    `Sec-Fetch-Site` header. Most browsers do not send this header over plain HTTP; then this is False."""
    return request.headers.get("sec-fetch-site") in ("same-origin", "none")


def _is_ours(request: Request, form: Fields, session: Session) -> bool:
    token = form.raw("csrf") or ""
    return is_same_origin(request) and hmac.compare_digest(token.encode(), session.csrf.encode())


def _to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in page. A request from htmx reloads only a part of the page, so the response instructs htmx
    to redirect the whole page."""
    place = f"{SIGN_IN}?next={quote(path_and_query(request))}" if request.method == "GET" else SIGN_IN
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": place})
    return RedirectResponse(place, 303)


# -- signing in and out --------------------------------------------------------------------------------------


CountFailure = Callable[[Scope], None]
"""Counts a wrong key of the client of a request, and raises Overloaded after too many."""


class SignIn:
    """Signing in and out."""

    def __init__(self, guard: Guard, links: SignInLinks, count_failure: CountFailure) -> None:
        self._guard = guard
        self._links = links
        self._count_failure = count_failure

    async def form(self, request: Request) -> Response:
        """GET /console/sign-in"""
        if await self._guard.session(request):
            return RedirectResponse(inside(request.query_params.get("next")), 303)
        return _form(request)

    async def sign_in(self, request: Request) -> Response:
        """POST /console/sign-in"""
        if not is_same_origin(request):
            return _form(request, "this form was sent by another site; enter your key here", 403)
        try:
            given = await self._guard.form(request, FORM_BYTES_MAX)
            key = await self._guard.doorstep.components.keys.authenticate(given.text("key") or "")
            if key is None:
                self._count_failure(request.scope)
                return _form(request, _UNKNOWN, 401)
        except (InvalidInput, Overloaded) as error:
            return _form(request, str(error), 429 if isinstance(error, Overloaded) else 422)
        return self._welcome(request, key, inside(given.text("next")))

    async def follow_link(self, request: Request) -> Response:
        """GET /console/sign-in/{token}: signs the user in. Asks for confirmation first if another site may have sent
        the user here, or if the user is signed in with another key. HEAD also gets the confirmation, because programs
        send HEAD to preview a link, and this must not use up the link."""
        key, session = await self._holder(request), await self._guard.session(request)
        if key is None:  # the browser may have used the link by prefetching it
            return RedirectResponse(HOME, 303) if session else _form(request, _USED, 401)
        is_another = session is not None and session.key.key_id != key.key_id
        if request.method == "HEAD" or not is_opened_by_user(request) or is_another:
            return signed_out_page("sign_in_link.html", key=key, path=request.url.path, session=session)
        return self._spend(request, key)

    async def confirm_link(self, request: Request) -> Response:
        """POST /console/sign-in/{token}"""
        key = await self._holder(request) if is_same_origin(request) else None
        return _form(request, _USED, 401) if key is None else self._spend(request, key)

    def _spend(self, request: Request, key: ApiKey) -> Response:
        """Use up the link and sign in. Call this only after the key has been looked up: if the store is down, the
        lookup fails and the link stays valid."""
        spent = self._links.spend(request.path_params["token"])
        return self._welcome(request, key, HOME) if spent else _form(request, _USED, 401)

    async def _holder(self, request: Request) -> ApiKey | None:
        """The API key that the link signs in with; None if the link or the key is not valid."""
        digest = self._links.stands_for(request.path_params["token"])
        return None if digest is None else await self._guard.doorstep.components.keys.holder(digest)

    async def sign_out(self, request: Request) -> Response:
        """POST /console/sign-out"""
        response = RedirectResponse(SIGN_IN, 303)
        if is_same_origin(request):
            response.delete_cookie(SESSION_COOKIE, path=HOME)
        return response

    def _welcome(self, request: Request, key: ApiKey, to: str) -> Response:
        refusal = permission_error(key.role, Permission.LOOK) or (NOT_FOR_USERS if key.user_id is not None else None)
        if refusal is not None:
            return _form(request, refusal, 403)
        response = RedirectResponse(to, 303)
        set_session(response, self._guard.sessions.begin(key), request)
        return response


def _form(request: Request, refusal: str | None = None, status: int = 200) -> Response:
    return signed_out_page("sign_in.html", status, next=inside(request.query_params.get("next")), refusal=refusal)


# -- errors as pages ---------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """An error, in the form that a page shows."""

    status: int
    title: str
    detail: str
    transient: bool = False
    """Whether trying again may help."""


def problem_of(error: Exception) -> Problem:
    match error:
        case NotFound():
            return Problem(404, "Not found", f"{str(error)[:1].upper()}{str(error)[1:]}.")
        case InvalidInput():
            return Problem(422, "Invalid input", str(error))
        case Overloaded():
            return Problem(429, "Too many requests", str(error), transient=True)
        case NotOffered():
            return Problem(501, "Not offered with this database", f"{str(error)[:1].upper()}{str(error)[1:]}.")
        case StoreUnavailable():
            detail = "no accepted event is lost; deliveries continue when the store is back"
            return Problem(503, "The store cannot be reached", detail, transient=True)
        case DoorstepError():
            return Problem(409, "Not possible now", str(error))
    return Problem(500, "Internal error", "the log has the details", transient=True)


def answer_error(request: PageRequest, error: Exception) -> Response:
    """The response to an error. After a rejected action, it redirects to the page that the action came from, which
    shows the reason. Other errors get their own page."""
    if request.is_post and isinstance(error, Conflict | InvalidInput | NotOffered | Overloaded):
        return request.refused(str(error))
    _log_bug(request.http, error)
    if isinstance(error, InvalidInput):
        return show_problem(request, Problem(422, "Invalid filter", str(error)), clear=request.path)
    return show_problem(request, problem_of(error))


def show_problem(request: PageRequest, problem: Problem, **context: object) -> Response:
    """Show an error page. After a POST, the page offers only a link back and not a link to try again, because a link
    cannot submit the form again."""
    return request.page(
        "problem.html",
        problem.status,
        problem=problem,
        correlation_id=request.correlation_id,
        again=None if request.is_post else request.url,
        back=request.back,
        **context,
    )


def with_error_page(answer: Route) -> Route:
    """The route, with an error page for errors that occur before the session is known, for example while the store is
    down. That page has no menu and shows nothing that needs a session."""

    async def route(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:  # noqa: BLE001  any error that the guard did not handle
            _log_bug(request, error)
            problem = problem_of(error)
            return signed_out_page(
                "problem.html",
                problem.status,
                problem=problem,
                correlation_id=request.scope["correlation_id"],
                again=path_and_query(request) if request.method == "GET" else None,
                back=HOME,
            )

    return route


def signed_out_page(template: str, status: int = 200, **context: object) -> Response:
    return html(rendered(template, request=None, **context), status)


def _log_bug(request: Request, error: Exception) -> None:
    """Log an unexpected error. Every exception that is not a DoorstepError is a bug in Doorstep."""
    if not isinstance(error, DoorstepError):
        extra = {"correlation_id": request.scope["correlation_id"]}
        _log.error("a page failed", extra=extra, exc_info=error)
