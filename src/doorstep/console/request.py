"""Declares the pages of the console, and represents a request from a signed-in user: its input and its responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple
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
from doorstep.policy.wording import CONSOLE_WORDING

if TYPE_CHECKING:
    from doorstep.app import Doorstep
    from doorstep.components import Components
    from doorstep.operations.reader import Reader

HOME = "/console"
SESSION_COOKIE, FLASH_COOKIE = "doorstep_session", "doorstep_said"
_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
FormError = InvalidInput | Conflict
"""An error that can be shown on the submitted form."""


class PageRequest:
    def __init__(self, doorstep: Doorstep, sessions: Sessions, session: Session, http: Request, form: Fields) -> None:
        self.doorstep = doorstep
        self.components: Components = doorstep.components
        self.reader: Reader = doorstep.components.reader
        self.session = session
        self.org_id = session.key.org_id
        self.in_default_org = self.org_id == DEFAULT_ORG
        """Whether the user administers the whole installation."""
        self.actor = session.key.prefix
        """The user's name in the audit log."""
        self.http = http
        self.path = http.url.path
        self.url = path_and_query(http)
        """The path and query of this page."""
        self.query = Fields(http.query_params.multi_items())
        self.form = form
        self.is_post = http.method == "POST"
        """Whether a form was sent."""
        self.refreshing = "hx-request" in http.headers
        """Whether htmx is reloading the live part of a page. If so, a flash message waits for the next full page."""
        self.badges: Mapping[str, str] = {}
        """The counts in the menu, by the path of the screen."""
        self.correlation_id = str(http.scope["correlation_id"])
        self._sessions = sessions
        self.flash = None if self.refreshing else sessions.open(http.cookies.get(FLASH_COOKIE, ""), Flash)

    # -- the request ---------------------------------------------------------------------------------------

    @property
    def now(self) -> Instant:
        return self.doorstep.clock.now()

    @property
    def back(self) -> str:
        """The page that the form was opened from. If the request names no page of the console, this is the console's
        start page."""
        return inside(self.form.text("back") or self.query.text("back"))

    @property
    def sent(self) -> Fields:
        """The fields of the submitted form. Before it is submitted, these are the query parameters of the URL that
        shows it."""
        return self.form if self.is_post else self.query

    @property
    def filtered(self) -> bool:
        """Whether the query narrows the list. Its place and its order do not."""
        return bool(self.query.without("cursor", "limit", "sort", "order"))

    def may(self, permission: str) -> bool:
        return self.session.may(Permission(permission))

    def id(self, name: str) -> UUID:
        """An id in the path. A malformed id is replaced by an id that does not exist, so that it leads to NotFound."""
        try:
            return UUID(self.http.path_params[name])
        except ValueError:
            return UUID(int=0)

    def text(self, name: str) -> str:
        """A path parameter that is not an id."""
        return str(self.http.path_params[name])

    # -- responses -----------------------------------------------------------------------------------------

    def say(self, name: str, **counts: int) -> str:
        """A text of CONSOLE_WORDING, as the program words it."""
        return (self.doorstep.server.wording.get(name) or CONSOLE_WORDING[name]).format_map(counts)

    def page(self, template: str, status: int = 200, **context: object) -> Response:
        response = html(rendered(template, request=self, now=self.now, **context), status)
        if self.flash is not None and not self.flash.watch:
            response.delete_cookie(FLASH_COOKIE, path=HOME)
        return response

    def form_page(
        self, template: str, error: FormError | None = None, entered: Fields | None = None, **context: object
    ) -> Response:
        """A page with a form. The inputs contain the values in `entered`. If `entered` is None, or if there is an
        error, they contain the submitted values. An error is also shown."""
        status = 200 if error is None else 422 if isinstance(error, InvalidInput) else 409
        values = self.form if entered is None or error is not None else entered
        return self.page(template, status, entered=values, error=error, **context)

    def done(self, sentence: str, to: str | None = None, watch: str = "") -> Response:
        """Redirect to a page that shows this sentence as a success message. With `watch`, the result follows."""
        return self._redirect(to or self.back, Flash(sentence, watch=watch))

    def refused(self, sentence: str, to: str | None = None) -> Response:
        return self._redirect(to or self.back, Flash(sentence, good=False))

    def _redirect(self, to: str, flash: Flash) -> Response:
        response = RedirectResponse(to, 303)
        value, secure = self._sessions.seal(flash), is_secure(self.http)
        response.set_cookie(FLASH_COOKIE, value, 60, path=HOME, httponly=True, samesite="lax", secure=secure)
        return response


def html(text: str, status: int = 200) -> Response:
    return Response(text, status, headers=_SECURITY_HEADERS, media_type="text/html")


def is_secure(request: Request) -> bool:
    """Whether the request came over HTTPS. If so, the cookies in the response are restricted to HTTPS."""
    return request.url.scheme == "https"


def path_and_query(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def inside(path: str | None) -> str:
    """The path if it belongs to the console, otherwise the console's start page. This prevents redirects to other
    sites."""
    known = path is not None and (path == HOME or path.startswith((f"{HOME}/", f"{HOME}?")))
    return path if path is not None and known and "\\" not in path and path.isprintable() else HOME


# -- declaring pages ---------------------------------------------------------------------------------------

Answer = Callable[[PageRequest], Awaitable[Response]]
Declare = Callable[[Answer], Answer]
Service = Callable[[UUID, UUID, str], Awaitable[object]]
"""A function that acts on one item. It takes the ids of the organization and the item, and the user's name."""
ShowForm = Callable[[PageRequest, FormError | None], Awaitable[Response]]
"""A function that shows a form. If it gets an error, it shows the submitted values with the error."""
LOOK, ACT, ADMINISTER = Permission.LOOK, Permission.ACT, Permission.ADMINISTER


class Page(NamedTuple):
    method: str
    path: str
    permission: Permission
    answer: Answer
    default_org: bool = False
    """Whether the page is only for keys of the default organization, which administers the whole installation."""


class Pages:
    """The pages of one screen. Every page that changes state is a POST, which by default requires the permission
    `ACT`."""

    def __init__(self, prefix: str = "") -> None:
        self.path = HOME + prefix
        self.pages: list[Page] = []

    def get(self, path: str = "", permission: Permission = LOOK, *, default_org: bool = False) -> Declare:
        return self._page("GET", path, permission, default_org)

    def post(self, path: str = "", permission: Permission = ACT, *, default_org: bool = False) -> Declare:
        return self._page("POST", path, permission, default_org)

    def act(self, path: str, service: Callable[[Components], Service], sentence: str) -> None:
        """Declare an action that needs no input: POST calls the service for the item in the path, and the next page
        shows `sentence`."""

        @self.post(path)
        async def answer(request: PageRequest) -> Response:
            (item,) = request.http.path_params
            await service(request.components)(request.org_id, request.id(item), request.actor)
            return request.done(sentence)

    def form(
        self,
        path: str,
        show: ShowForm,
        permission: Permission = ACT,
        *,
        default_org: bool = False,
        shows: type[FormError] | tuple[type[FormError], ...] = InvalidInput,
    ) -> Declare:
        """Declare a form: GET shows the form, POST calls the decorated function. If that function raises one of the
        exceptions in `shows`, the form is shown again with the error. `guard.answer_error` handles all other errors."""

        def declare(submit: Answer) -> Answer:
            async def ask(request: PageRequest) -> Response:
                return await show(request, None)

            async def answer(request: PageRequest) -> Response:
                try:
                    return await submit(request)
                except shows as error:
                    return await show(request, error)

            self.get(path, permission, default_org=default_org)(ask)
            self.post(path, permission, default_org=default_org)(answer)
            return submit

        return declare

    def _page(self, method: str, path: str, permission: Permission, default_org: bool) -> Declare:
        def declare(answer: Answer) -> Answer:
            self.pages.append(Page(method, self.path + path, permission, answer, default_org))
            return answer

        return declare
