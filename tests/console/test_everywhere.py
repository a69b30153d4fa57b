"""Rules for every page of the console, checked for each entry in the table of pages, on both stores.

Roles are in test_roles.py, hostile texts in test_hostile.py.
"""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode
from uuid import uuid4

import pytest
import pytest_asyncio

from doorstep.console.request import Page
from doorstep.console.routes import all_pages
from tests.console.furnished import House
from tests.console.markup import elements, fields_of
from tests.console.visiting import Console, Shown
from tests.support.shortcuts import count_states

PAGES = all_pages()
GETS = [page for page in PAGES if page.method == "GET"]
POSTS = [page for page in PAGES if page.method == "POST"]
NAMING = [page for page in PAGES if "_id}" in page.path]
"""Pages whose path contains an id."""
FILES = {
    "/console/dead-letters/export",
    "/console/events/{event_id}/payload",
    "/console/deliveries/{delivery_id}/payload",
    "/console/deliveries/{delivery_id}/attempts/{number}/body",
}
"""Paths that answer with a file, not with an HTML page."""
RUBBISH = (
    "nonsense", "\0", "'\"<>&;", "-1", "999999999999999999999999", "1e400", "nan", "..%2f..", "\ud800".encode(
        "utf-8", "surrogatepass"), "0001-01-01", "9999-12-31T23:59:59.999999Z", str(uuid4()), "🚪" * 300, "*", "%",
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def owner(house: House) -> Console:
    return await house.visitor()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stranger(house: House) -> Console:
    """A session of the admin of another organization."""
    return await house.visitor(org="theirs")


async def asked(house: House, visitor: Console, page: Page, path: str) -> Shown:
    """Request a page; form fields are valid, so that only the path can be the reason for a refusal."""
    said = {"endpoint_id": house.ids["endpoint_id"][0], "reason": "x"}
    return await (visitor.get(path) if page.method == "GET" else visitor.post(path, said))


# -- access -----------------------------------------------------------------------------------------------------------


async def test_nobody_gets_anything_without_signing_in(house: House, subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page=f"{page.method} {page.path}"):
            before = await _traces(house)
            shown = await asked(house, Console(house.api.url), page, house.path(page))
            assert shown.path.startswith("/console/sign-in")
            assert await _traces(house) == before


async def test_what_another_organization_has_is_not_found(
    house: House, stranger: Console, subtests: pytest.Subtests
) -> None:
    for page in NAMING:
        with subtests.test(page=f"{page.method} {page.path}"):
            before = await _traces(house)
            shown = await asked(house, stranger, page, house.path(page))
            assert shown.status == (403 if _is_reserved(page) else 404), shown.text
            assert await _traces(house) == before


async def test_what_does_not_exist_is_not_found_in_the_same_words(
    house: House, owner: Console, stranger: Console, subtests: pytest.Subtests
) -> None:
    for page in NAMING:
        with subtests.test(page=f"{page.method} {page.path}"):
            unknown = await asked(house, stranger if _is_reserved(page) else owner, page, house.unknown(page))
            theirs = await asked(house, stranger, page, house.path(page))
            assert unknown.status == (403 if _is_reserved(page) else 404), unknown.text
            assert _sentence(unknown) == _sentence(theirs)


def _is_reserved(page: Page) -> bool:
    """Whether the page is for admins of the default organization; others are refused, whatever the id."""
    return page.path.startswith("/console/settings/organizations/")


async def test_a_form_without_the_token_of_the_session_does_nothing(
    house: House, owner: Console, subtests: pytest.Subtests
) -> None:
    for page in POSTS:
        with subtests.test(page=f"{page.method} {page.path}"):
            before = await _traces(house)
            for body in (b"reason=x", b"csrf=guessed&reason=x", b"csrf="):
                answer = await owner.raw("POST", house.path(page), body)
                assert answer.status == 403
            assert await _traces(house) == before


async def test_a_form_that_another_site_sends_does_nothing_even_with_the_token(
    house: House, owner: Console, subtests: pytest.Subtests
) -> None:
    for page in POSTS:
        with subtests.test(page=f"{page.method} {page.path}"):
            before = await _traces(house)
            token = (await owner.get("/console/endpoints/new")).field("csrf")
            body = urlencode({"csrf": token, "reason": "x"}).encode()
            for header in (
                {"Sec_Fetch_Site": "cross-site"},
                {"Sec_Fetch_Site": "same-site"},
                {"Origin": "https://evil.example"},
            ):
                assert (await owner.raw("POST", house.path(page), body, **header)).status == 403
            assert await _traces(house) == before


# -- rules for every page ---------------------------------------------------------------------------------------------


async def test_a_page_keeps_to_the_rules_of_the_console(
    house: House, owner: Console, subtests: pytest.Subtests
) -> None:
    for page in GETS:
        with subtests.test(page=f"{page.method} {page.path}"):
            shown = await owner.get(house.path(page))
            assert shown.status in (200, 422), shown.text  # a confirmation for an empty selection is refused
            if page.path in FILES:
                continue
            found = elements(shown.source)
            assert [one.tag for one in found].count("h1") == 1
            assert "default-src 'none'" in shown.headers["content-security-policy"]
            assert "unsafe" not in shown.headers["content-security-policy"]
            assert shown.headers["cache-control"] == "no-store"
            assert shown.headers["x-content-type-options"] == "nosniff"
            for one in found:
                assert not [name for name in one.attributes if name == "style" or name.startswith(("on", "hx-on"))], one
                own = one.attributes.get("src", "").startswith("/console/static/")
                assert one.tag not in ("script", "style") or own or one.attributes.get("type") == "application/json", (
                    one
                )
                for name in ("href", "src", "action", "formaction", "hx-get"):
                    address = one.attributes.get(name, "/")
                    assert address.startswith(("/console", "/docs", "#", "?", "/", "https://github.com/")), one
                    assert not address.startswith("//"), one


async def test_every_form_that_changes_something_carries_the_token(
    house: House, owner: Console, subtests: pytest.Subtests
) -> None:
    for page in GETS:
        with subtests.test(page=f"{page.method} {page.path}"):
            found = elements((await owner.get(house.path(page))).source)
            forms = [one for one in found if one.tag == "form" and one.attributes.get("method", "").lower() == "post"]
            signed = {one.form for one in found if one.attributes.get("name") == "csrf"}
            assert [
                one for one in forms if one.form not in signed and one.attributes["action"] != "/console/sign-out"
            ] == []


async def test_a_page_can_be_asked_for_its_head_and_by_no_other_method(
    house: House, owner: Console, subtests: pytest.Subtests
) -> None:
    for page in GETS:
        with subtests.test(page=f"{page.method} {page.path}"):
            path = house.path(page)
            head = await owner.raw("HEAD", path)
            assert (head.status, head.body) == ((await owner.raw("GET", path)).status, b"")
            taken = {one.method for one in PAGES if one.path == page.path}
            for method in {"POST", "PUT", "PATCH", "DELETE"} - taken:
                answer = await owner.raw(method, path, b"")
                assert answer.status in (403, 404, 405), f"{method} {path}: {answer.status}"


async def test_rubbish_in_a_field_is_refused_or_finds_nothing_and_never_breaks(
    house: House, owner: Console, subtests: pytest.Subtests
) -> None:
    for page in GETS:
        with subtests.test(page=f"{page.method} {page.path}"):
            path = house.path(page)
            names = {*fields_of((await owner.get(path)).source), "cursor", "range", "id", "back", "endpoint_id"}
            for place, name in enumerate(sorted(names)):
                for value in (
                    RUBBISH
                    if name == "cursor"
                    else (RUBBISH[(place + step) % len(RUBBISH)] for step in range(0, 15, 4))
                ):
                    answer = await owner.raw("GET", f"{path}?{quote(name)}={quote(value)}")
                    assert answer.status < 500, f"{path}?{name}={value!r}: {answer.body[-2_000:].decode()}"


async def test_rubbish_in_a_form_is_refused_and_never_breaks(
    house: House, owner: Console, subtests: pytest.Subtests
) -> None:
    for page in POSTS:
        with subtests.test(page=f"{page.method} {page.path}"):
            path = house.unknown(page)
            token = (await owner.get("/console/endpoints/new")).field("csrf").encode()
            for body in (
                b"id=%00&reason=%00&name=%00&payload=%00&event_type=%00",
                b"id=nonsense&rate=nan&limit=1e400&version=x&all=",
                b"%ff%fe=%ff",
                b"reason=" + b"x" * 100_000,
                b"&".join(b"id=%d" % n for n in range(6_000)),
                b"payload=" + b"[" * 5_000,
                b"name=" + "🚪".encode() * 300 + b"&role=king&kind=owl&rule=none&threshold=-1",
            ):
                answer = await owner.raw("POST", path, b"csrf=" + token + b"&" + body)
                assert answer.status < 500, f"{path} {body[:60]!r}: {answer.body[-2_000:].decode()}"


async def _traces(house: House) -> object:
    """Every action adds a line to the audit log, changes an endpoint, or changes the number of deliveries in some
    state."""
    store = house.scene.doorstep.components.store
    audit = (await house.api.get("/v1/audit?limit=3")).json["audit"]
    endpoints = (await house.api.get("/v1/endpoints?limit=200")).json["endpoints"]
    return audit, endpoints, await count_states(store)


def _sentence(shown: Shown) -> str:
    """The text of a not-found page, without the ids in the requested path."""
    main = shown.source.partition("<main")[2].partition("</main>")[0]
    words = re.split(r"\W+", Shown(0, "", {}, main).text)
    return " ".join(word for word in words if word not in re.split(r"\W+", shown.path))
