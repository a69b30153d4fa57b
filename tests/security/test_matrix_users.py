"""Every route with the key of a user: it reaches only the events of this user, on each store."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from doorstep.api.application import ROUTES
from doorstep.model.org import ALLOWED, USER_ROLES, Role
from tests.security.requests import ask, unknown_ids
from tests.support.program import Program

OWN = {
    "POST /v1/events",
    "POST /v1/events/batch",
    "GET /v1/events",
    "GET /v1/events/{event_id}",
    "GET /v1/events/{event_id}/status",
    "GET /v1/inbox",
    "POST /v1/inbox/lease",
    "POST /v1/inbox/ack",
    "POST /v1/inbox/nack",
    "POST /v1/events/{event_id}/ack",
    "POST /v1/events/{event_id}/nack",
}
"""The routes that restrict themselves to a user. Written by hand, because the table itself could be wrong."""


@pytest.fixture(scope="module")
def key_of(served: Program) -> Any:
    def create(role: Role, user: str | None) -> str:
        made = served.post("/v1/keys", {"name": "theirs", "role": role, "user_id": user})
        assert (made.status, made.json["user_id"]) == (201, user), made.body
        return str(made.json["key"])

    return create


def send(served: Program, key: str, **fields: object) -> dict[str, Any]:
    made = served.post("/v1/events", {"event_type": "of.users", "payload": {"secret": 1}, **fields}, key=key)
    assert made.status == 202, made.body
    return dict(made.json)


def test_the_table_opens_exactly_these_routes_to_the_keys_of_users() -> None:
    assert {line for line, access in ROUTES.items() if access.own} == OWN


def test_a_key_with_a_user_may_use_only_the_routes_that_restrict_themselves(
    served: Program, key_of: Any, subtests: pytest.Subtests
) -> None:
    keys = {role: key_of(role, "eve") for role in USER_ROLES}
    for line, access in ROUTES.items():
        with subtests.test(route=line):
            may = {role: access.own and access.permission in ALLOWED[role] for role in keys}
            answers = {role: ask(served, line, key, unknown_ids()) for role, key in keys.items()}
            assert {role: answer.status != 403 for role, answer in answers.items()} == may


def test_an_event_of_another_user_is_not_found_on_any_route(
    served: Program, key_of: Any, subtests: pytest.Subtests
) -> None:
    event_id = send(served, key_of(Role.CONSUMER, "ada"))["event_id"]
    of_nobody = send(served, key_of(Role.PUBLISHER, None))["event_id"]
    keys = {role: key_of(role, "ben") for role in (Role.CONSUMER, Role.VIEWER)}
    for line in (line for line in OWN if "{event_id}" in line):
        role = Role.CONSUMER if ROUTES[line].permission in ALLOWED[Role.CONSUMER] else Role.VIEWER
        for number, one in enumerate((event_id, of_nobody)):
            with subtests.test(route=line, event=number):
                answer = ask(served, line, keys[role], unknown_ids() | {"event_id": one})
                unknown = ask(served, line, keys[role], unknown_ids())
                assert (answer.status, answer.json["title"]) == (404, unknown.json["title"])


def every(program: Program, key: str) -> set[str]:
    """The ids on all pages of the inbox."""
    found: set[str] = set()
    cursor: str | None = ""
    while cursor is not None:
        page = program.get(f"/v1/inbox?limit=1000{cursor and '&cursor=' + cursor}", key=key).json
        found |= {one["event_id"] for one in page["events"]}
        cursor = page["pagination"]["cursor"]
    return found


def test_lists_leases_and_answers_reach_only_own_events(served: Program, key_of: Any) -> None:
    ada, ben, all_of_them = key_of(Role.CONSUMER, "a" * 200), key_of(Role.CONSUMER, "bén"), key_of(Role.CONSUMER, None)
    mine, theirs = send(served, ada)["event_id"], send(served, ben)["event_id"]

    def listed(key: str) -> tuple[set[str], int]:
        page = served.get("/v1/inbox?limit=1000", key=key).json
        return {one["event_id"] for one in page["events"]}, page["pagination"]["total_count"]

    assert listed(ada) == ({mine}, 1)
    assert listed(ben) == ({theirs}, 1)
    assert {mine, theirs} <= every(served, all_of_them)
    viewer = key_of(Role.VIEWER, "bén")
    (event,) = served.get("/v1/events", key=viewer).json["events"]
    assert (event["event_id"], event["user_id"]) == (theirs, "bén")
    assert served.get(f"/v1/events/{theirs}", key=viewer).json["user_id"] == "bén"
    (leased,) = served.post("/v1/inbox/lease", {}, key=ada).json["events"]
    assert leased["event_id"] == mine
    answers = served.post("/v1/inbox/ack", {"events": [{"event_id": mine}, {"event_id": theirs}]}, key=ada).json
    assert [one["result"] for one in answers["events"]] == ["acknowledged", "not_found"]
    assert served.get(f"/v1/events/{theirs}/status", key=ben).json["status"] == "received"
    assert served.get(f"/v1/events/{theirs}/status", key=all_of_them).status == 200


def test_users_do_not_share_idempotency_keys(served: Program, key_of: Any) -> None:
    ada, ben = key_of(Role.PUBLISHER, "ada"), key_of(Role.PUBLISHER, "ben")
    first, second = (send(served, key, idempotency_key="order-1") for key in (ada, ben))
    assert first["event_id"] != second["event_id"]
    assert send(served, ada, idempotency_key="order-1")["verdict"] == "repeated"
    viewer = key_of(Role.VIEWER, "ben")
    (found,) = served.get("/v1/events?idempotency_key=order-1", key=viewer).json["events"]
    assert found["event_id"] == second["event_id"]


def test_an_operator_finds_the_event_of_a_user_by_the_key_of_the_user(served: Program, key_of: Any) -> None:
    key = f"order-{uuid4()}"
    sent = {
        user: send(served, key_of(Role.PUBLISHER, user), idempotency_key=key)["event_id"] for user in ("ada", "ben")
    }
    plain = send(served, key_of(Role.PUBLISHER, None), idempotency_key=key)["event_id"]
    operator = key_of(Role.OPERATOR, None)

    def found(query: str, key: str = operator) -> list[str]:
        return [one["event_id"] for one in served.get(f"/v1/events?{query}", key=key).json["events"]]

    assert found(f"idempotency_key={key}") == [plain], "a key without a user"
    for user, event_id in sent.items():
        assert found(f"idempotency_key={key}&user_id={user}") == [event_id]
        assert event_id in found(f"user_id={user}&limit=1000") and plain not in found(f"user_id={user}&limit=1000")
    ada = key_of(Role.VIEWER, "ada")
    assert found(f"idempotency_key={key}&user_id=ada", ada) == [sent["ada"]]
    refused = served.get(f"/v1/events?idempotency_key={key}&user_id=ben", key=ada)
    assert (refused.status, refused.json["errors"][0]["field"]) == (422, "user_id")


def test_a_user_gets_no_role_that_acts_for_others_and_no_console(served: Program, key_of: Any) -> None:
    for role in (Role.ADMIN, Role.OPERATOR):
        refused = served.post("/v1/keys", {"name": "x", "role": role, "user_id": "ada"})
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, "role")
    for user in ("", "x" * 201, "a\nb"):
        assert served.post("/v1/keys", {"name": "x", "role": "viewer", "user_id": user}).status == 422
    assert served.post("/v1/sign-in-links", key=key_of(Role.VIEWER, "ada")).status == 403
