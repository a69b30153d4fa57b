"""Every role on every page in the table of pages; and what each role is shown."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio

from doorstep.console.request import Page
from doorstep.console.routes import all_pages
from doorstep.model.org import ALLOWED, Permission, Role
from tests.console.furnished import House
from tests.console.markup import elements
from tests.console.visiting import Console

PAGES = all_pages()
ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""Publishers cannot sign in at all (see test_signing_in.py)."""
Visitors = dict[Role, Console]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitors(house: House) -> Visitors:
    return {role: await house.visitor(role) for role in ROLES}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def elsewhere(house: House) -> Console:
    """A session of the admin of another organization."""
    return await house.visitor(org="theirs")


async def test_a_role_is_let_in_where_its_permissions_reach_and_refused_elsewhere(
    house: House, visitors: Visitors, subtests: pytest.Subtests
) -> None:
    """Forms name ids that do not exist, so that roles with permission change nothing."""
    for page in PAGES:
        with subtests.test(page=f"{page.method} {page.path}"):
            for role, visitor in visitors.items():
                if page.method == "GET":
                    shown = await visitor.get(house.path(page))
                else:
                    shown = await visitor.post(house.unknown(page))
                allowed = page.permission in ALLOWED[role]
                assert (shown.status == 403) is not allowed, f"{role}: {shown.status} {shown.text}"
                assert allowed or "Not allowed" in shown.text


async def test_what_concerns_the_whole_installation_is_for_the_default_organization_alone(
    house: House, elsewhere: Console, subtests: pytest.Subtests
) -> None:
    for page in PAGES:
        with subtests.test(page=f"{page.method} {page.path}"):
            if page.default_org:
                path = house.unknown(page)
                shown = await (elsewhere.get(path) if page.method == "GET" else elsewhere.post(path))
                assert (shown.status, "Not allowed" in shown.text) == (403, True)


def test_what_changes_something_needs_more_than_a_permission_to_look() -> None:
    assert [page.path for page in PAGES if page.method == "POST" and page.permission is Permission.LOOK] == []


def test_who_may_do_what_is_as_the_requirements_say() -> None:
    """The expected permissions are written out here, because the declarations could be wrong."""
    administration = re.compile(r"/console/settings/(keys|organizations)\b")
    for page in PAGES:
        if administration.match(page.path):
            assert page.permission is Permission.ADMINISTER, page
        elif page.method == "POST":
            assert page.permission in (Permission.ACT, Permission.SEND, Permission.ADMINISTER), page


async def test_nobody_is_shown_a_way_to_what_they_may_not_do(
    house: House, visitors: Visitors, subtests: pytest.Subtests
) -> None:
    """On pages that a role may see, no form and no link would be refused for that role."""
    for page in PAGES:
        with subtests.test(page=f"{page.method} {page.path}"):
            if page.method != "GET":
                continue
            for role, visitor in visitors.items():
                shown = await visitor.get(house.path(page))
                refused = [
                    way
                    for way in _ways(shown.source)
                    if (found := _page(*way)) and found.permission not in ALLOWED[role]
                ]
                assert refused == [], role


def _ways(source: str) -> set[tuple[str, str]]:
    """The links and forms of a page, each with method and path."""
    found = elements(source)
    methods = {one.form: one.attributes.get("method", "get").upper() for one in found if one.tag == "form"}
    named = {one.attributes.get("id"): one.form for one in found if one.tag == "form"}
    sending = {one.form for one in found if one.tag == "button" and one.attributes.get("type") != "button"}
    ways = set()
    for one in found:
        form = named.get(one.attributes["form"], 0) if "form" in one.attributes else one.form
        if one.tag == "a":
            ways.add(("GET", one.attributes.get("href", "")))
        elif one.tag == "form" and one.form in sending and "action" in one.attributes:
            ways.add((methods[one.form], one.attributes["action"]))
        elif "formaction" in one.attributes:
            ways.add((one.attributes.get("formmethod", methods.get(form, "GET")).upper(), one.attributes["formaction"]))
    return {(method, re.split(r"[?#]", path)[0]) for method, path in ways}


def _page(method: str, path: str) -> Page | None:
    """The page that handles this request: the first match, as in the router."""
    for page in PAGES:
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(page.path))
        if page.method == method and re.fullmatch(pattern, path):
            return page
    return None


def test_the_ways_out_of_a_page_are_found() -> None:
    """If this failed, the test above could never fail."""
    source = """<a href="/console/endpoints/new?x=1">new</a>
        <form method="post" action="/console/bulk/1/pause"><button>pause</button></form>
        <form id="act" method="post"></form><button form="act" formaction="/console/retry-queue/1/retry">retry</button>"""
    found = [_page(*way) for way in sorted(_ways(source))]
    assert [page and (page.method, page.path) for page in found] == [
        ("GET", "/console/endpoints/new"),
        ("POST", "/console/bulk/{bulk_id}/pause"),
        ("POST", "/console/retry-queue/{delivery_id}/retry"),
    ]
