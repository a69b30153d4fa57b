"""Every route for every role and for every other organization, generated from the table of routes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from doorstep.api.access import ALLOWED, ROUTES
from doorstep.model.org import Role
from tests.integration.keys import add_key, add_org
from tests.integration.program import Answer, Program, wait_for
from tests.integration.receiver import Receiver, receiving
from tests.integration.test_api import create_endpoint, new_type, wait_for_status

BODIES: dict[str, Any] = {
    "POST /v1/events": {"event_type": "a", "payload": 1},
    "POST /v1/events/batch": [{"event_type": "a", "payload": 1}],
    "POST /v1/events/{event_id}/replay": {"endpoint_id": str(uuid4())},
    "POST /v1/endpoints": {"name": "a", "handler": "h", "event_types": ["none"]},
    "PATCH /v1/endpoints/{endpoint_id}": {"name": "b"},
    "POST /v1/endpoints/{endpoint_id}/replay": {
        "created_from": "2020-01-01T00:00:00Z",
        "created_before": "2020-01-02T00:00:00Z",
        "preview": True,
    },
    "POST /v1/retry-queue/bulk-retry": {"all": True, "preview": True},
    "POST /v1/retry-queue/bulk-skip": {"all": True, "preview": True},
    "POST /v1/dead-letters/bulk-retry": {"all": True, "preview": True},
    "POST /v1/dead-letters/bulk-resolve": {"all": True, "preview": True},
    "POST /v1/dead-letters/bulk-delete": {"all": True, "preview": True},
    "POST /v1/keys": {"name": "a", "role": "viewer"},
    "POST /v1/orgs": {"name": "a"},
}
"""What the routes that need a body are asked with."""


@pytest.fixture(scope="module")
def role_keys(served: Program) -> dict[Role, str]:
    return {role: add_key(served, role) for role in Role}


@pytest.fixture(scope="module")
def stranger(served: Program) -> str:
    """The admin of another organization."""
    return add_org(served)


def ask(served: Program, line: str, key: str, ids: dict[str, str]) -> Answer:
    method, path = line.split(" ")
    return served.request(method, path.format(**ids), BODIES.get(line), key=key)


def unknown_ids() -> dict[str, str]:
    return {f"{noun}_id": str(uuid4()) for noun in ("event", "delivery", "endpoint", "bulk", "key")}


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("line", list(ROUTES))
def test_each_role_may_do_exactly_what_the_table_says(
    served: Program, role_keys: dict[Role, str], line: str, role: Role
) -> None:
    answer = ask(served, line, role_keys[role], unknown_ids())
    allowed = ROUTES[line].permission in ALLOWED[role]
    assert (answer.status != 403) is allowed, answer.body
    assert answer.status not in (401, 405) and answer.status < 500, answer.body


@pytest.mark.parametrize("line", [line for line, access in ROUTES.items() if access.default_org])
def test_what_is_for_the_default_organization_is_refused_to_the_admins_of_others(
    served: Program, stranger: str, line: str
) -> None:
    assert ask(served, line, stranger, {}).status == 403


@pytest.mark.parametrize("line", [line for line in ROUTES if "{" in line])
def test_what_belongs_to_another_organization_answers_like_what_does_not_exist(
    served: Program, stranger: str, theirs: dict[str, str], line: str
) -> None:
    rubbish = dict.fromkeys(theirs, "not-an-id")
    foreign, unknown, no_id = (ask(served, line, stranger, ids) for ids in (theirs, unknown_ids(), rubbish))
    for answer in (foreign, unknown, no_id):
        assert (answer.status, answer.json["type"]) == (404, "urn:doorstep:problem:not_found"), answer.body
    kinds = [_without_ids(answer.json["detail"]) for answer in (foreign, unknown)]
    assert kinds[0] == kinds[1], "the wording must not tell them apart"


@pytest.mark.parametrize("line", [line for line in ROUTES if "{" in line])
def test_the_same_requests_find_what_is_ones_own(served: Program, theirs: dict[str, str], line: str) -> None:
    """The control: without it, a 404 for everything would pass as isolation."""
    if line.startswith("GET"):
        method, path = line.split(" ")
        assert served.request(method, path.format(**theirs)).status == 200


@pytest.fixture(scope="module")
def theirs(served: Program) -> dict[str, str]:
    """One of each thing, of the default organization."""
    with receiving() as receiver:
        return _things(served, receiver)


def _things(served: Program, receiver: Receiver) -> dict[str, str]:
    receiver.status = 400
    event_type = new_type()
    endpoint_id = create_endpoint(served, receiver.url, event_type)["endpoint_id"]
    event_id = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    wait_for_status(served, event_id, "failed")
    (delivery,) = served.get(f"/v1/events/{event_id}").json["deliveries"]
    bulk = served.post("/v1/dead-letters/bulk-resolve", {"delivery_ids": [str(uuid4())]}).json
    wait_for(lambda: served.get(f"/v1/bulk/{bulk['bulk_id']}").json["state"] == "finished")
    key = served.post("/v1/keys", {"name": "a", "role": "viewer"}).json
    return {
        "event_id": event_id,
        "delivery_id": delivery["delivery_id"],
        "endpoint_id": endpoint_id,
        "bulk_id": bulk["bulk_id"],
        "key_id": key["key_id"],
    }


def _without_ids(sentence: str) -> str:
    return " ".join(word for word in sentence.split() if word.count("-") != 4)
