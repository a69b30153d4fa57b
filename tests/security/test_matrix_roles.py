"""Every role on every route, generated from the table of routes, on each store."""

from __future__ import annotations

import pytest

from doorstep.api.application import ROUTES, create_application
from doorstep.app import Doorstep
from doorstep.config import Settings
from doorstep.model.org import ALLOWED, Role
from tests.integration.keys import add_key, add_org
from tests.security.requests import ask, unknown_ids
from tests.support.program import ADMIN_KEY, Program, wait_for

OPEN = {"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs/style.css"}
"""Routes that anyone may read, because they reveal nothing about any organization."""


def test_every_route_that_the_router_knows_is_in_the_table_or_open_on_purpose() -> None:
    application = create_application(Doorstep(Settings(database_url="memory://")))
    lines = {f"{method} {route.path}" for route in application.routes for method in route.methods - {"HEAD"}}
    lines |= {" ".join(line) for line in application.direct}
    assert {line for line in lines if not _is_elsewhere(line.split(" ")[1])} == set(ROUTES)


def _is_elsewhere(path: str) -> bool:
    """Whether the path is public, or a page of the console, which tests/console checks for each role."""
    return path in OPEN or path == "/" or path == "/console" or path.startswith("/console/")


@pytest.fixture(scope="module")
def keys(served: Program) -> dict[Role, str]:
    return {role: add_key(served, role) for role in Role}


@pytest.fixture(scope="module")
def bad_keys(served: Program) -> dict[str, str | None]:
    revoked = served.post("/v1/keys", {"name": "revoked", "role": "admin"}).json
    assert served.get("/v1/keys", key=revoked["key"]).status == 200
    assert served.request("DELETE", f"/v1/keys/{revoked['key_id']}").status == 204
    wait_for(lambda: served.get("/v1/keys", key=revoked["key"]).status == 401)
    return {
        "none": None,
        "another": "dsk_" + "A" * 43,
        "a prefix": ADMIN_KEY[:-1],
        "a longer one": ADMIN_KEY + "x",
        "in capitals": ADMIN_KEY.upper(),
        "revoked": revoked["key"],
        "endless": "x" * 5_000,
    }


def test_without_a_valid_key_every_route_answers_the_same_401(
    served: Program, bad_keys: dict[str, str | None], subtests: pytest.Subtests
) -> None:
    for line in ROUTES:
        with subtests.test(route=line):
            answers = {name: ask(served, line, key, unknown_ids()) for name, key in bad_keys.items()}
            assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(bad_keys, 401)
            assert len({answer.body for answer in answers.values()}) == 1, "none tells why"


def test_without_a_key_nobody_learns_which_paths_there_are(served: Program, subtests: pytest.Subtests) -> None:
    for path in ("/v1/", "/v1/nothing", "/v1/events/x/nothing", "/v1//events"):
        with subtests.test(path=path):
            assert served.get(path, key=None).status == 401


def test_each_role_may_use_a_route_exactly_if_the_table_says_so(
    served: Program, keys: dict[Role, str], subtests: pytest.Subtests
) -> None:
    for line in ROUTES:
        with subtests.test(route=line):
            allowed = {role: ROUTES[line].permission in ALLOWED[role] for role in Role}
            answers = {role: ask(served, line, key, unknown_ids()) for role, key in keys.items()}
            assert {role: answer.status != 403 for role, answer in answers.items()} == allowed
            assert not [answer for answer in answers.values() if answer.status in (401, 405) or answer.status >= 500]


def test_what_concerns_all_organizations_is_refused_to_the_admins_of_any_but_the_default_one(
    served: Program, subtests: pytest.Subtests
) -> None:
    for line in (line for line, access in ROUTES.items() if access.default_org):
        with subtests.test(route=line):
            assert ask(served, line, add_org(served), unknown_ids()).status == 403


def test_the_roles_are_those_of_the_requirements() -> None:
    """Written by hand, because the table itself could be wrong."""
    may = {role: {line for line, access in ROUTES.items() if access.permission in ALLOWED[role]} for role in Role}
    assert may[Role.PUBLISHER] == {
        "POST /v1/events",
        "POST /v1/events/batch",
        "GET /v1/events/{event_id}/status",
    }
    assert may[Role.CONSUMER] == may[Role.PUBLISHER] | {
        "GET /v1/inbox",
        "POST /v1/inbox/lease",
        "POST /v1/inbox/ack",
        "POST /v1/inbox/nack",
        "POST /v1/events/{event_id}/ack",
        "POST /v1/events/{event_id}/nack",
    }
    looking = {line for line in ROUTES if line.startswith("GET ")} | {"POST /v1/sign-in-links"}
    assert may[Role.VIEWER] == looking - ADMINISTRATION
    assert may[Role.OPERATOR] == set(ROUTES) - ADMINISTRATION
    assert may[Role.ADMIN] == set(ROUTES)


ADMINISTRATION = {
    "POST /v1/keys",
    "GET /v1/keys",
    "DELETE /v1/keys/{key_id}",
    "POST /v1/orgs",
    "GET /v1/orgs",
    "PATCH /v1/orgs/{org_id}",
    "DELETE /v1/orgs/{org_id}",
    "PUT /v1/search-fields",
}
