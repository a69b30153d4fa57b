"""One request of somebody who is signed in: what was asked, and the ways to answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import Instant
from doorstep.console.fields import Fields
from doorstep.console.rendering import rendered
from doorstep.console.sessions import Flash, Session, Sessions
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.org import Permission

if TYPE_CHECKING:
    from doorstep.app import Doorstep

HOME = "/console"
SESSION_COOKIE, SAID_COOKIE = "doorstep_session", "doorstep_said"
_SAFETY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class PageRequest:
    def __init__(
        self, doorstep: Doorstep, sessions: Sessions, visitor: Session, request: Request, form: Fields
    ) -> None:
        self.doorstep = doorstep
        self.visitor = visitor
        self.request = request
        self.query = Fields(request.query_params.multi_items())
        self.form = form
        self._sessions = sessions
        self.said = None if self.refreshing else sessions.sentence(request.cookies.get(SAID_COOKIE, ""))

    # -- what was asked ------------------------------------------------------------------------------------

    @property
    def org_id(self) -> UUID:
        return self.visitor.key.org_id

    @property
    def in_default_org(self) -> bool:
        """Whether this is somebody who looks after the whole installation."""
        return self.org_id == DEFAULT_ORG

    @property
    def actor(self) -> str:
        """Who does it, as the audit log says."""
        return self.visitor.key.prefix

    @property
    def now(self) -> Instant:
        return self.doorstep.clock.now()

    @property
    def path(self) -> str:
        return self.request.url.path

    @property
    def url(self) -> str:
        """This very page, with its filter."""
        return whole_path(self.request)

    @property
    def acting(self) -> bool:
        """Whether a form was sent."""
        return self.request.method == "POST"

    @property
    def refreshing(self) -> bool:
        """Whether a page asks for its live part again. What was done is for the page that comes next, not for that."""
        return "hx-request" in self.request.headers

    @property
    def correlation_id(self) -> str:
        return str(self.request.scope["correlation_id"])

    @property
    def back(self) -> str:
        """Where whoever sent this form came from: a page of the console, whatever was sent."""
        return inside(self.form.text("back") or self.query.text("back"))

    def may(self, permission: str) -> bool:
        return self.visitor.may(Permission(permission))

    def id(self, name: str) -> UUID:
        """An id in the path. One that is no id cannot name anything, so it is unknown like any other."""
        try:
            return UUID(self.request.path_params[name])
        except ValueError:
            return UUID(int=0)

    def text(self, name: str) -> str:
        """Some other name in the path."""
        return str(self.request.path_params[name])

    # -- answers -------------------------------------------------------------------------------------------

    def page(self, template: str, status: int = 200, **context: object) -> Response:
        text = rendered(template, visit=self, now=self.now, **context)
        response = html(text, status)
        if self.said is not None:
            response.delete_cookie(SAID_COOKIE, path=HOME)
        return response

    def filled(
        self, template: str, entered: Fields, error: InvalidInput | Conflict | None = None, **context: object
    ) -> Response:
        """A form with what is entered in it; once more, where something is wrong with that."""
        status = 200 if error is None else 422 if isinstance(error, InvalidInput) else 409
        return self.page(template, status, entered=entered, error=error, **context)

    def again(self, template: str, error: InvalidInput, **context: object) -> Response:
        """The form that was sent, with what is wrong with it."""
        return self.filled(template, self.form, error, **context)

    def done(self, sentence: str, to: str | None = None) -> Response:
        """Something was done: say so on the page that comes next."""
        return self._moved(to or self.back, Flash(sentence))

    def refused(self, sentence: str, to: str | None = None) -> Response:
        return self._moved(to or self.back, Flash(sentence, good=False))

    def _moved(self, to: str, said: Flash) -> Response:
        response = RedirectResponse(to, 303)
        value = self._sessions.sealed_sentence(said)
        secure = is_secure(self.request)
        response.set_cookie(SAID_COOKIE, value, 60, path=HOME, httponly=True, samesite="lax", secure=secure)
        return response


def html(text: str, status: int = 200) -> Response:
    return Response(text, status, headers=_SAFETY, media_type="text/html")


def is_secure(request: Request) -> bool:
    """Whether it came over https, so that its cookies go by no other way."""
    return request.url.scheme == "https"


def whole_path(request: Request) -> str:
    """The path that was asked for, with its query."""
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def inside(path: str | None) -> str:
    """A path of the console; its front page for anything else, so that nobody can be sent away from here."""
    known = path is not None and (path == HOME or path.startswith((f"{HOME}/", f"{HOME}?")))
    return path if path is not None and known and "\\" not in path and path.isprintable() else HOME
