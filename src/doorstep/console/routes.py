"""The console as routes of the application: every screen, signing in, style and scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from doorstep.console.guard import Guard
from doorstep.console.page import Page, Pages
from doorstep.console.pages import (
    alert_settings,
    alerts,
    audit,
    batches,
    bulk,
    dead_letter_tools,
    dead_letters,
    delivery,
    endpoint,
    endpoint_actions,
    endpoints,
    event,
    events,
    overview,
    pipelines,
    retry_queue,
    settings,
    workers,
)
from doorstep.console.pages import alert_settings as alert_rules
from doorstep.console.pages import alert_settings as alert_silences
from doorstep.console.pages import dead_letter_tools as letter_export
from doorstep.console.pages import endpoint_actions as endpoint_editing
from doorstep.console.pages import endpoint_actions as endpoint_replay
from doorstep.console.pages import pipelines as entity
from doorstep.console.pages import settings as settings_keys
from doorstep.console.pages import settings as settings_orgs
from doorstep.console.pages import settings as settings_target
from doorstep.console.problems import guarded
from doorstep.console.rendering import PREFIX, serve_asset
from doorstep.console.request import HOME
from doorstep.console.sessions import Sessions, SignInLinks
from doorstep.console.sign_in import Failures, SigningIn

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
    dead_letter_tools.EDIT_PAGES,
    letter_export.EXPORT_PAGES,
    endpoints.PAGES,
    endpoint_editing.EDIT_PAGES,
    endpoint_actions.ACTION_PAGES,
    endpoint_replay.REPLAY_PAGES,
    endpoint.PAGES,
    batches.PAGES,
    pipelines.PAGES,
    entity.ENTITY_PAGES,
    alert_rules.RULE_PAGES,
    alert_settings.CHANNEL_PAGES,
    alert_silences.SILENCE_PAGES,
    alerts.PAGES,
    workers.PAGES,
    settings_keys.KEY_PAGES,
    settings_orgs.ORG_PAGES,
    settings_target.TARGET_PAGES,
    settings.SETTINGS_PAGES,
)


def all_pages() -> list[Page]:
    return [page for screen in SCREENS for page in screen.pages]


def add_console(application: Starlette, doorstep: Doorstep, links: SignInLinks, failures: Failures) -> None:
    sessions = Sessions(lambda: doorstep.components)
    entrance = Guard(doorstep, sessions)
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
