"""Signing in, with a key or a one-time link; and out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from doorstep.console.guard import FORM_BYTES_MAX, SIGN_IN, Guard, is_from_here, is_led_by_nobody, set_session
from doorstep.console.problems import unsigned
from doorstep.console.request import HOME, SESSION_COOKIE, inside
from doorstep.console.sessions import Session, Sessions, SignInLinks
from doorstep.errors import InvalidInput, Overloaded
from doorstep.model.org import ApiKey, Permission, refusal_of

if TYPE_CHECKING:
    from doorstep.app import Doorstep

_UNKNOWN = "this key is not known here, has expired or was revoked"
_USED = "this link was used already, or is too old; sign in with a key, or ask for a new link: doorstep console"


class Failures(Protocol):
    """Counts wrong keys by where they come from; Overloaded for whoever tries too many."""

    def check(self, who: str) -> None: ...


class SigningIn:
    def __init__(
        self, doorstep: Doorstep, sessions: Sessions, entrance: Guard, links: SignInLinks, failures: Failures
    ) -> None:
        self._doorstep = doorstep
        self._sessions = sessions
        self._entrance = entrance
        self._links = links
        self._failures = failures

    async def form(self, request: Request) -> Response:
        """GET /console/sign-in"""
        if await self._visitor(request):
            return RedirectResponse(inside(request.query_params.get("next")), 303)
        return _form(request)

    async def sign_in(self, request: Request) -> Response:
        """POST /console/sign-in"""
        if not is_from_here(request):
            return _form(request, "this form was sent by another site; enter your key here", 403)
        try:
            given = await self._entrance.form(request, FORM_BYTES_MAX)
            key = await self._doorstep.components.keys.authenticate(given.text("key") or "")
            if key is None:
                self._failures.check(_client(request))
                return _form(request, _UNKNOWN, 401)
        except (InvalidInput, Overloaded) as error:
            return _form(request, str(error), 429 if isinstance(error, Overloaded) else 422)
        return self._welcome(request, key, inside(given.text("next")))

    async def follow_link(self, request: Request) -> Response:
        """GET /console/sign-in/{token}: signs in, unless the link may be somebody else's trick; then it asks. So it does
        with whoever only looks at the headers, as programs do that show where a link leads."""
        key, visitor = await self._holder(request), await self._visitor(request)
        if key is None:  # a browser that looked ahead may have used it for its user
            return RedirectResponse(HOME, 303) if visitor else _form(request, _USED, 401)
        is_another = visitor is not None and visitor.key.key_id != key.key_id
        if request.method == "HEAD" or not is_led_by_nobody(request) or is_another:
            return unsigned("sign_in_link.html", key=key, path=request.url.path, visitor=visitor)
        return self._spend(request, key)

    async def confirm_link(self, request: Request) -> Response:
        """POST /console/sign-in/{token}"""
        key = await self._holder(request) if is_from_here(request) else None
        return _form(request, _USED, 401) if key is None else self._spend(request, key)

    def _spend(self, request: Request, key: ApiKey) -> Response:
        """Only now: a link whose key could not be looked up, with the store away, is good for another try."""
        spent = self._links.spend(request.path_params["token"])
        return self._welcome(request, key, HOME) if spent else _form(request, _USED, 401)

    async def _holder(self, request: Request) -> ApiKey | None:
        """Whose link it is, as long as it is good."""
        digest = self._links.stands_for(request.path_params["token"])
        return None if digest is None else await self._doorstep.components.keys.holder(digest)

    async def _visitor(self, request: Request) -> Session | None:
        return await self._sessions.visitor(request.cookies.get(SESSION_COOKIE, ""))

    async def sign_out(self, request: Request) -> Response:
        """POST /console/sign-out"""
        response = RedirectResponse(SIGN_IN, 303)
        if is_from_here(request):
            response.delete_cookie(SESSION_COOKIE, path=HOME)
        return response

    def _welcome(self, request: Request, key: ApiKey, to: str) -> Response:
        if refusal := refusal_of(key.role, Permission.LOOK):
            return _form(request, refusal, 403)
        response = RedirectResponse(to, 303)
        set_session(response, self._sessions.begin(key), request)
        return response


def _form(request: Request, refusal: str | None = None, status: int = 200) -> Response:
    return unsigned("sign_in.html", status, next=inside(request.query_params.get("next")), refusal=refusal)


def _client(request: Request) -> str:
    return request.client.host if request.client else ""
