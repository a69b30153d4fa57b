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
from doorstep.console.sessions import Said, Sessions, Visitor
from doorstep.errors import InvalidInput
from doorstep.model.permission import Permission

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


class Visit:
    def __init__(
        self, doorstep: Doorstep, sessions: Sessions, visitor: Visitor, request: Request, form: Fields
    ) -> None:
        self.doorstep = doorstep
        self.visitor = visitor
        self.request = request
        self.query = Fields(request.query_params.multi_items())
        self.form = form
        self._sessions = sessions
        self.said = sessions.sentence(request.cookies.get(SAID_COOKIE, ""))

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

    def again(self, template: str, error: InvalidInput, **context: object) -> Response:
        """A form once more, with what was entered, and what is wrong with it."""
        return self.page(template, 422, error=error, entered=self.form, **context)

    def done(self, sentence: str, to: str | None = None) -> Response:
        """Something was done: say so on the page that comes next."""
        return self._moved(to or self.back, Said(sentence))

    def refused(self, sentence: str, to: str | None = None) -> Response:
        return self._moved(to or self.back, Said(sentence, good=False))

    def _moved(self, to: str, said: Said) -> Response:
        response = RedirectResponse(to, 303)
        value = self._sessions.sealed_sentence(said)
        response.set_cookie(SAID_COOKIE, value, max_age=60, path=HOME, httponly=True, samesite="lax")
        return response


def html(text: str, status: int = 200) -> Response:
    return Response(text, status, headers=_SAFETY, media_type="text/html")


def whole_path(request: Request) -> str:
    """The path that was asked for, with its query."""
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def inside(path: str | None) -> str:
    """A path of the console; its front page for anything else, so that nobody can be sent away from here."""
    known = path is not None and (path == HOME or path.startswith((f"{HOME}/", f"{HOME}?")))
    return path if path is not None and known and "\\" not in path and path.isprintable() else HOME
