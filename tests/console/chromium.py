"""Debian's Chromium, driven by Playwright: how it is started, and what no page may do in it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.sessions import SignInLinks
from doorstep.model.org import Role
from doorstep.operations.keys import ApiKeys
from tests.console.visiting import Console
from tests.console.window import Window
from tests.support.patience import PATIENCE_MILLISECONDS

Look = Callable[..., Awaitable[Page]]

OPENED = {"Sec-Fetch-Site": "none"}
"""The header that a browser sends if its user opened the address directly."""
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
)


async def launched(playwright: Playwright) -> Browser:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.fail("there is no Chromium here; `make test` installs it where it may, else install it by hand")
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    return await playwright.chromium.launch(executable_path=program, args=_ARGUMENTS, timeout=PATIENCE_MILLISECONDS)


async def opened(browser: Browser, **options: Any) -> BrowserContext:
    """A browser context without a session, like a new window. Its timeouts leave room for slow machines."""
    context = await browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    return context


@asynccontextmanager
async def looking(
    browser: Browser, url: str, links: SignInLinks, keyring: ApiKeys, window: Window | None = None
) -> AsyncIterator[Look]:
    """Opens pages for a signed-in user; fails at the end if a page did something forbidden.

    The first page is opened in the shared window, if there is one. Each further page gets its own context, and so does
    each page with `alone`, because such pages change the clock of their context.
    """
    troubles: list[str] = []
    free = [window] if window else []
    async with AsyncExitStack() as stack:

        async def entered(alone: bool) -> tuple[BrowserContext, str]:
            if free and not alone:
                taken = free.pop()
                await taken.lead_to(url)
                return taken.context, taken.url
            context = await opened(browser, base_url=url)
            stack.push_async_callback(context.close)
            return context, url

        async def look(
            path: str = "/console",
            role: Role = Role.ADMIN,
            theme: str = "light",
            width: int = 1360,
            alone: bool = False,
        ) -> Page:
            context, home = await entered(alone)
            record, _ = await keyring.create(DEFAULT_ORG, f"a {role}", role, "test")
            await _sign_in(context, url, links.new(record))
            page = await stack.enter_async_context(watched(context, home, troubles))
            await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
            await page.set_viewport_size({"width": width, "height": 850})
            await page.goto(path)
            return page

        yield look
    assert troubles == [], troubles


async def _sign_in(context: BrowserContext, url: str, link: str) -> None:
    """Sign in over HTTP and copy the cookies into the context, which saves drawing a page that no test needs."""
    visitor = Console(url)
    answer = await visitor.raw("GET", link, **OPENED)
    assert answer.status == 303, answer.body
    for name, value in visitor.cookies.items():
        await context.add_cookies([{"name": name, "value": value, "domain": "127.0.0.1", "path": "/console"}])


@asynccontextmanager
async def watched(context: BrowserContext, home: str, troubles: list[str]) -> AsyncIterator[Page]:
    """A new page. Requests to other servers, script errors and content-policy violations are added to `troubles`."""
    page = await context.new_page()

    def on_request(request: Request) -> None:
        if not request.url.startswith((home, "data:")):
            troubles.append(f"a request to {request.url}")

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            troubles.append(message.text)

    context.on("request", on_request)
    page.on("console", on_console)
    page.on("pageerror", lambda error: troubles.append(f"an error in a script: {error}"))
    page.on("dialog", lambda dialog: troubles.append(f"a dialog of a script: {dialog.message}"))
    yield page
    await page.close()
    context.remove_listener("request", on_request)
