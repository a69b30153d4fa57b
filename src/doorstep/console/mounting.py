"""The console as routes of the application: every screen, signing in, style and scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from doorstep.console.assets import PREFIX, serve_asset
from doorstep.console.entrance import Entrance
from doorstep.console.links import SignInLinks
from doorstep.console.page import Page, Pages
from doorstep.console.pages import (
    alert_channels,
    alert_rules,
    alert_silences,
    alerts,
    audit,
    batches,
    bulk,
    dead_letters,
    delivery,
    endpoint,
    endpoint_acts,
    endpoint_editing,
    endpoint_replay,
    endpoints,
    entity,
    event,
    events,
    letter_editing,
    letter_export,
    overview,
    pipelines,
    retry_queue,
    settings,
    settings_keys,
    settings_orgs,
    settings_target,
    workers,
)
from doorstep.console.problems import guarded
from doorstep.console.sessions import Sessions
from doorstep.console.signing_in import Failures, SigningIn
from doorstep.console.visit import HOME

if TYPE_CHECKING:
    from doorstep.app import Doorstep

SCREENS: tuple[Pages, ...] = (
    overview.PAGES,
    bulk.PAGES,
    audit.PAGES,
    retry_queue.PAGES,
    events.PAGES,
    event.PAGES,
    delivery.PAGES,
    dead_letters.PAGES,
    letter_editing.PAGES,
    letter_export.PAGES,
    endpoints.PAGES,
    endpoint_editing.PAGES,
    endpoint_acts.PAGES,
    endpoint_replay.PAGES,
    endpoint.PAGES,
    batches.PAGES,
    pipelines.PAGES,
    entity.PAGES,
    alert_rules.PAGES,
    alert_channels.PAGES,
    alert_silences.PAGES,
    alerts.PAGES,
    workers.PAGES,
    settings_keys.PAGES,
    settings_orgs.PAGES,
    settings_target.PAGES,
    settings.PAGES,
)


def all_pages() -> list[Page]:
    return [page for screen in SCREENS for page in screen.pages]


def add_console(application: Starlette, doorstep: Doorstep, links: SignInLinks, failures: Failures) -> None:
    sessions = Sessions(lambda: doorstep.components)
    entrance = Entrance(doorstep, sessions)
    for page in all_pages():
        application.add_route(page.path, entrance.route(page), methods=[page.method], include_in_schema=False)
    signing = SigningIn(doorstep, sessions, entrance, links, failures)
    _add(application, "GET", "/sign-in", signing.form)
    _add(application, "POST", "/sign-in", signing.sign_in)
    _add(application, "GET", "/sign-in/{token}", signing.follow_link)
    _add(application, "POST", "/sign-in/{token}", signing.confirm_link)
    _add(application, "POST", "/sign-out", signing.sign_out)
    application.add_route(f"{PREFIX}/{{edition}}/{{name:path}}", serve_asset, methods=["GET"], include_in_schema=False)
    _add(application, "GET", "/", _home)
    application.add_route("/", _home, methods=["GET"], include_in_schema=False)


def _add(application: Starlette, method: str, path: str, answer: Callable[[Request], Awaitable[Response]]) -> None:
    application.add_route(HOME + path, guarded(answer), methods=[method], include_in_schema=False)


async def _home(_: Request) -> Response:
    return RedirectResponse(HOME, 303)
