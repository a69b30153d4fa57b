"""What people see when something goes wrong: a readable page with a link to continue, never an API response."""

from __future__ import annotations

from typing import NoReturn
from uuid import UUID

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.sessions import SignInLinks
from doorstep.errors import StoreUnavailable
from doorstep.model.listing import BoundedQuery, KeysByDigest
from doorstep.operations.keys import CACHE_SECONDS
from tests.console.visiting import Console
from tests.support.api import Api
from tests.support.scene import Scene


@pytest.fixture
def store_away(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No key can be looked up until `undo` is called."""
    scene.leap(CACHE_SECONDS + 1)
    store = scene.doorstep.components.store
    find = store.find

    async def find_no_key(org_id: UUID | None, query: BoundedQuery[object]) -> list[object]:
        return await (_away() if isinstance(query, KeysByDigest) else find(org_id, query))

    monkeypatch.setattr(store, "find", find_no_key)
    return monkeypatch


async def _away(*_: object, **__: object) -> NoReturn:
    raise StoreUnavailable("the database cannot be reached")


async def test_with_the_store_away_a_browser_gets_a_page_that_leads_back_to_where_it_was(
    console: Console, store_away: pytest.MonkeyPatch
) -> None:
    shown = await console.get("/console/retry-queue?status=pending")
    assert (shown.status, shown.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "The store cannot be reached" in shown.text
    assert 'href="/console/retry-queue?status=pending">Try again' in shown.source
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    store_away.undo()
    assert (await console.get("/console/retry-queue?status=pending")).status == 200


async def test_signing_in_with_the_store_away_is_a_page_too(
    api: Api, console: Console, store_away: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for method in ("GET", "POST"):
        with subtests.test(method=method):
            answer = await console.raw(method, "/console/sign-in", b"key=x" if method == "POST" else None)
            assert answer.status == 503
            assert b"The store cannot be reached" in answer.body


async def test_a_link_that_was_followed_with_the_store_away_signs_in_when_it_is_back(
    api: Api, links: SignInLinks, scene: Scene, store_away: pytest.MonkeyPatch
) -> None:
    (record, *_) = await scene.doorstep.components.keys.keys(DEFAULT_ORG)
    link, visitor = links.new(record), Console(api.url)
    assert (await visitor.get(link)).status == 503
    store_away.undo()
    assert (await visitor.post(link)).path == "/console"


async def test_a_form_that_failed_leads_back_to_its_page_and_not_to_a_page_that_cannot_be_read(
    console: Console, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await console.get("/console/retry-queue")
    monkeypatch.setattr(scene.doorstep.components.reader, "delivery", _away)
    path = "/console/retry-queue/0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b/retry"
    shown = await console.post(path, back="/console/retry-queue?status=pending")
    assert shown.status == 503
    assert path not in shown.source
    assert 'href="/console/retry-queue?status=pending">Go back' in shown.source


async def test_a_form_that_was_sent_with_the_store_away_does_not_lead_to_a_page_that_cannot_be_read(
    console: Console, store_away: pytest.MonkeyPatch
) -> None:
    shown = await console.post("/console/bulk/0197b5a2-3c4d-7e5f-8a9b-0c1d2e3f4a5b/pause")
    assert shown.status == 503
    assert "Try again" not in shown.text


async def test_a_page_that_does_not_exist_is_a_page_with_the_menu_and_not_an_answer_of_the_api(
    api: Api, console: Console, subtests: pytest.Subtests
) -> None:
    for path in ("/console/nothing", "/console/events/", "/console/a/b/c"):
        with subtests.test(path=path):
            shown = await console.get(path)
            assert (shown.status, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
            assert "Not found" in shown.text and 'href="/console/retry-queue"' in shown.source
    assert (await console.post("/console/nothing")).status == 404
    assert (await Console(api.url).get("/console/nothing")).path.startswith("/console/sign-in")
