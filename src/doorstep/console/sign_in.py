"""Signing in with a key or a one-time link, and signing out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from doorstep.console.guard import (
    FORM_BYTES_MAX,
    SIGN_IN,
    Guard,
    is_opened_by_user,
    is_same_origin,
    set_session,
    signed_out_page,
)
from doorstep.console.request import HOME, SESSION_COOKIE, inside
from doorstep.console.sessions import Session, Sessions, SignInLinks
from doorstep.errors import InvalidInput, Overloaded
from doorstep.model.org import ApiKey, Permission, permission_error

if TYPE_CHECKING:
    from doorstep.app import Doorstep

_UNKNOWN = "this key is unknown, has expired or was revoked"
_USED = "this link was used or is too old; sign in with a key, or get a new link: doorstep console"


class Failures(Protocol):
    """Counts wrong keys for each client, and raises Overloaded after too many."""

    def check(self, who: str) -> None: ...


class SignIn:
    def __init__(
        self, doorstep: Doorstep, sessions: Sessions, guard: Guard, links: SignInLinks, failures: Failures
    ) -> None:
        self._doorstep = doorstep
        self._sessions = sessions
        self._guard = guard
        self._links = links
        self._failures = failures

    async def form(self, request: Request) -> Response:
        """GET /console/sign-in"""
        if await self._session(request):
            return RedirectResponse(inside(request.query_params.get("next")), 303)
        return _form(request)

    async def sign_in(self, request: Request) -> Response:
        """POST /console/sign-in"""
        if not is_same_origin(request):
            return _form(request, "this form was sent by another site; enter your key here", 403)
        try:
            given = await self._guard.form(request, FORM_BYTES_MAX)
            key = await self._doorstep.components.keys.authenticate(given.text("key") or "")
            if key is None:
                self._failures.check(_client(request))
                return _form(request, _UNKNOWN, 401)
        except (InvalidInput, Overloaded) as error:
            return _form(request, str(error), 429 if isinstance(error, Overloaded) else 422)
        return self._welcome(request, key, inside(given.text("next")))

    async def follow_link(self, request: Request) -> Response:
        """GET /console/sign-in/{token}: signs in. It asks for confirmation first if another site may have sent the user
        here, or if the user is signed in with another key. It also asks on HEAD, which programs use to preview a
        link."""
        key, session = await self._holder(request), await self._session(request)
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
        """Use up the link and sign in. This comes after looking up the key, so that the link stays valid if the store
        is down."""
        spent = self._links.spend(request.path_params["token"])
        return self._welcome(request, key, HOME) if spent else _form(request, _USED, 401)

    async def _holder(self, request: Request) -> ApiKey | None:
        """The key of the link; None if the link or the key is not valid."""
        digest = self._links.stands_for(request.path_params["token"])
        return None if digest is None else await self._doorstep.components.keys.holder(digest)

    async def _session(self, request: Request) -> Session | None:
        return await self._sessions.session(request.cookies.get(SESSION_COOKIE, ""))

    async def sign_out(self, request: Request) -> Response:
        """POST /console/sign-out"""
        response = RedirectResponse(SIGN_IN, 303)
        if is_same_origin(request):
            response.delete_cookie(SESSION_COOKIE, path=HOME)
        return response

    def _welcome(self, request: Request, key: ApiKey, to: str) -> Response:
        if refusal := permission_error(key.role, Permission.LOOK):
            return _form(request, refusal, 403)
        response = RedirectResponse(to, 303)
        set_session(response, self._sessions.begin(key), request)
        return response


def _form(request: Request, refusal: str | None = None, status: int = 200) -> Response:
    return signed_out_page("sign_in.html", status, next=inside(request.query_params.get("next")), refusal=refusal)


def _client(request: Request) -> str:
    return request.client.host if request.client else ""
