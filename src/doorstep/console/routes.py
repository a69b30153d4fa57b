"""The routes of the console: every screen, signing in, and static files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from doorstep.console import outcomes
from doorstep.console.guard import CountFailure, Guard, SignIn, with_error_page
from doorstep.console.pages import (
    alert_settings,
    alerts,
    audit,
    batches,
    bulk,
    delivery,
    endpoint,
    endpoint_deliveries,
    endpoints,
    events,
    failed_deliveries,
    overview,
    pipelines,
    search,
    settings,
)
from doorstep.console.rendering import PREFIX, serve_asset
from doorstep.console.request import HOME, Page, PageRequest, Pages
from doorstep.console.sessions import SignInLinks
from doorstep.errors import NotFound
from doorstep.model.org import Permission

if TYPE_CHECKING:
    from doorstep.app import Doorstep

SCREENS: tuple[Pages, ...] = (
    overview.PAGES,
    outcomes.PAGES,
    search.PAGES,
    search.FIELD_PAGES,
    bulk.PAGES,
    audit.PAGES,
    failed_deliveries.QUEUE_PAGES,
    events.LIST_PAGES,
    events.PAGES,
    delivery.PAGES,
    failed_deliveries.PAGES,
    endpoints.PAGES,
    endpoint.FORM_PAGES,
    endpoint.PAGES,
    endpoint_deliveries.PAGES,
    batches.PAGES,
    pipelines.PAGES,
    pipelines.ENTITY_PAGES,
    alert_settings.RULE_PAGES,
    alert_settings.CHANNEL_PAGES,
    alert_settings.SILENCE_PAGES,
    alerts.PAGES,
    settings.WORKER_PAGES,
    settings.KEY_PAGES,
    settings.ORG_PAGES,
    settings.TARGET_PAGES,
    settings.SETTINGS_PAGES,
)
"""The order matters for routing: a fixed path must come before a path that has a parameter in the same position."""


def all_pages() -> list[Page]:
    return [page for screen in SCREENS for page in screen.pages]


def add_console(application: Starlette, doorstep: Doorstep, links: SignInLinks, count_failure: CountFailure) -> None:
    guard = Guard(doorstep)
    for page in all_pages():
        application.add_route(page.path, guard.route(page), methods=[page.method], include_in_schema=False)
    sign_in = SignIn(guard, links, count_failure)
    _add(application, "GET", "/sign-in", sign_in.form)
    _add(application, "POST", "/sign-in", sign_in.sign_in)
    _add(application, "GET", "/sign-in/{token}", sign_in.follow_link)
    _add(application, "POST", "/sign-in/{token}", sign_in.confirm_link)
    _add(application, "POST", "/sign-out", sign_in.sign_out)
    application.add_route(f"{PREFIX}/{{edition}}/{{name:path}}", serve_asset, methods=["GET"], include_in_schema=False)
    _add(application, "GET", "/", _home)
    application.add_route("/", _home, methods=["GET"], include_in_schema=False)
    unknown = Page("GET", f"{HOME}/{{path:path}}", Permission.LOOK, _not_found)
    application.add_route(unknown.path, guard.route(unknown), methods=["GET", "POST"], include_in_schema=False)


def _add(application: Starlette, method: str, path: str, answer: Callable[[Request], Awaitable[Response]]) -> None:
    application.add_route(HOME + path, with_error_page(answer), methods=[method], include_in_schema=False)


async def _not_found(request: PageRequest) -> Response:
    raise NotFound(f"there is no page {request.path}")


async def _home(_: Request) -> Response:
    return RedirectResponse(HOME, 303)
