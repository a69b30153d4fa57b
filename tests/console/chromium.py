"""Debian's Chromium, driven by Playwright: how it is started, and what no page may do in it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, expect

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.links import SignInLinks
from doorstep.model.org import Role
from doorstep.path.keyring import ApiKeys
from tests.patience import PATIENCE_MILLISECONDS

Look = Callable[..., Awaitable[Page]]

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
    """Like a window of its own: nobody has signed in there. It waits for a slow machine as long as all tests do."""
    context = await browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    return context


@asynccontextmanager
async def looking(browser: Browser, url: str, links: SignInLinks, keyring: ApiKeys) -> AsyncIterator[Look]:
    """Opens pages for somebody who has signed in; fails at the end if one of them did what it may not."""
    troubles: list[str] = []
    contexts: list[BrowserContext] = []

    async def look(path: str = "/console", role: Role = Role.ADMIN, theme: str = "light", width: int = 1360) -> Page:
        record, _ = await keyring.create(DEFAULT_ORG, f"a {role}", role, "test")
        context = await opened(
            browser,
            base_url=url,
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": width, "height": 850},
        )
        contexts.append(context)
        page = await watched(context, url, troubles)
        await page.goto(links.new(record))
        await page.goto(path)
        return page

    yield look
    for context in contexts:
        await context.close()
    assert troubles == []


async def watched(context: BrowserContext, home: str, troubles: list[str]) -> Page:
    """A new page. Requests that leave home, errors of scripts and breaches of the content policy become troubles."""
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
    return page
