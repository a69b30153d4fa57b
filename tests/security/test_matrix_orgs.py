"""Every route with another organization's ids, on each store: foreign things look as if they did not exist."""

from __future__ import annotations

from typing import Any

import pytest

from doorstep.api.application import ROUTES
from tests.integration.keys import add_org
from tests.security.requests import BODIES, ask, unknown_ids
from tests.security.things import Owner, furnish
from tests.support.builders import unused
from tests.support.http_calls import Answer
from tests.support.program import Program
from tests.support.receiver import receiving

WITH_ID = [
    line for line, access in ROUTES.items() if "{" in line and "{pipeline}" not in line and not access.default_org
]
"""Routes with an id, except those of pipelines (see tests/acceptance/test_r9_pipeline_routes.py) and of organizations
(see tests/acceptance/test_r8_orgs.py)."""
READING = [line for line in WITH_ID if line.startswith("GET ")]
LISTS = [
    "/v1/events", "/v1/inbox", "/v1/inbox?status=failed", "/v1/endpoints", "/v1/retry-queue", "/v1/dead-letters",
    "/v1/dead-letters?status=archived", "/v1/dead-letters/groups", "/v1/bulk", "/v1/batches", "/v1/audit", "/v1/keys",
    "/v1/stats", "/v1/alerts", "/v1/alert-rules", "/v1/silences", "/v1/channels",
]  # fmt: skip
OWN = ("/v1/events", "/v1/batches", "/v1/endpoints", "/v1/dead-letters", "/v1/bulk", "/v1/audit")
"""Lists in which each organization of these tests has something."""


@pytest.fixture(scope="module")
def victim(served: Program) -> Owner:
    with receiving() as receiver:
        return furnish(served, add_org(served), receiver)


@pytest.fixture(scope="module")
def stranger(served: Program) -> Owner:
    """An organization that has things of its own, so that an empty answer would be noticed."""
    with receiving() as receiver:
        return furnish(served, add_org(served), receiver)


@pytest.fixture(scope="module")
def bystander(served: Program) -> str:
    """A third organization's admin, who never uses an id of the others: the ids would appear in its own audit log."""
    return add_org(served)


def test_another_organization_s_id_is_answered_like_an_id_of_nothing_and_changes_nothing(
    served: Program, victim: Owner, stranger: Owner, subtests: pytest.Subtests
) -> None:
    for line in WITH_ID:
        with subtests.test(route=line):
            before = seen(served, victim)
            nothing = unknown_ids()
            foreign, unknown = ask(served, line, stranger.key, victim.ids), ask(served, line, stranger.key, nothing)
            assert (foreign.status, unknown.status) == (404, 404), (foreign.body, unknown.body)
            assert without(foreign, victim.ids) == without(unknown, nothing)
            assert seen(served, victim) == before


def test_what_cannot_be_an_id_is_answered_like_an_id_of_nothing(
    served: Program, stranger: Owner, subtests: pytest.Subtests
) -> None:
    for line in WITH_ID:
        with subtests.test(route=line):
            for ids in (unknown_ids(), dict.fromkeys(stranger.ids, "not-an-id")):
                answer = ask(served, line, stranger.key, ids)
                assert (answer.status, answer.json["type"]) == (404, "urn:doorstep:problem:not_found"), answer.body


def test_the_same_request_by_its_owner_finds_it(served: Program, victim: Owner, subtests: pytest.Subtests) -> None:
    """The control: without it, a 404 for everybody would pass as isolation."""
    for line in READING:
        with subtests.test(route=line):
            assert ask(served, line, victim.key, victim.ids).status == 200


def test_no_list_shows_anything_of_another_organization(
    served: Program, victim: Owner, bystander: str, subtests: pytest.Subtests
) -> None:
    for path in LISTS:
        with subtests.test(path=path):
            body = served.get(path, key=bystander).body.decode()
            assert not [value for value in victim.ids.values() if value in body]


def test_the_control_a_list_shows_what_is_one_s_own(served: Program, victim: Owner, subtests: pytest.Subtests) -> None:
    for path in OWN:
        with subtests.test(path=path):
            body = served.get(path, key=victim.key).body.decode()
            assert [value for value in victim.ids.values() if value in body]


def test_a_cursor_of_another_organization_opens_none_of_its_pages(
    served: Program, victim: Owner, bystander: str, subtests: pytest.Subtests
) -> None:
    for path in ("/v1/events", "/v1/endpoints", "/v1/keys", "/v1/audit"):
        with subtests.test(path=path):
            send = {"event_type": "cursor", "payload": 1}
            assert served.post("/v1/events/batch", [send, send], key=victim.key).status == 202
            assert (
                served.post(
                    "/v1/endpoints", BODIES["POST /v1/endpoints"] | {"name": unused("matrix")}, key=victim.key
                ).status
                == 201
            )
            cursor = served.get(f"{path}?limit=1", key=victim.key).json["pagination"]["cursor"]
            assert cursor is not None
            answer = served.get(f"{path}?limit=200&cursor={cursor}", key=bystander)
            assert answer.status in (200, 422), answer.body
            assert not [value for value in victim.ids.values() if value in answer.body.decode()]


# -- ids in bodies and queries ---------------------------------------------------------------------------------


def test_an_event_cannot_be_sent_to_another_organization_s_endpoint(
    served: Program, victim: Owner, stranger: Owner
) -> None:
    for endpoint_id in (victim.ids["endpoint_id"], unknown_ids()["endpoint_id"]):
        event = {"event_type": "a", "payload": 1, "endpoint_ids": [endpoint_id]}
        answer = served.post("/v1/events", event, key=stranger.key)
        assert (answer.status, answer.json["detail"]) == (422, f"endpoint_ids: there is no endpoint {endpoint_id}")


def test_an_event_cannot_be_replayed_to_another_organization_s_endpoint(
    served: Program, victim: Owner, stranger: Owner
) -> None:
    path = f"/v1/events/{stranger.ids['event_id']}/replay"
    for endpoint_id in (victim.ids["endpoint_id"], unknown_ids()["endpoint_id"]):
        answer = served.post(path, {"endpoint_id": endpoint_id}, key=stranger.key)
        assert (answer.status, answer.json["detail"]) == (422, f"endpoint_id: there is no endpoint {endpoint_id}")


def test_a_bulk_operation_passes_over_another_organization_s_deliveries(
    served: Program, victim: Owner, stranger: Owner, subtests: pytest.Subtests
) -> None:
    for line in (line for line in ROUTES if "/bulk-" in line):
        with subtests.test(route=line):
            before = seen(served, victim)
            path = line.split(" ")[1]
            for chosen in ({"delivery_ids": [victim.ids["delivery_id"]]}, {"filter": endpoint_of(victim)}):
                preview = served.post(path, chosen | {"preview": True}, key=stranger.key)
                assert (preview.status, preview.json["count"], preview.json["endpoints"]) == (200, 0, []), preview.body
                assert served.post(path, chosen, key=stranger.key).status == 202
            assert seen(served, victim) == before


def test_a_filter_by_another_organization_s_endpoint_finds_nothing(
    served: Program, victim: Owner, stranger: Owner, subtests: pytest.Subtests
) -> None:
    for path in ("/v1/dead-letters", "/v1/dead-letters/groups", "/v1/retry-queue"):
        with subtests.test(path=path):
            query = "" if path.endswith("groups") else f"?endpoint_id={victim.ids['endpoint_id']}"
            answer = served.get(f"{path}{query}", key=stranger.key)
            assert answer.status == 200, answer.body
            assert victim.ids["endpoint_id"] not in answer.body.decode()


def test_the_same_idempotency_key_means_something_else_in_another_organization(
    served: Program, victim: Owner, stranger: Owner
) -> None:
    headers = {"Idempotency-Key": "one for both"}
    receipts = [
        served.post("/v1/events", {"event_type": "a", "payload": number}, key=owner.key, headers=headers)
        for number, owner in enumerate((victim, stranger))
    ]
    assert [receipt.status for receipt in receipts] == [202, 202]
    assert receipts[0].json["event_id"] != receipts[1].json["event_id"]


def endpoint_of(owner: Owner) -> dict[str, str]:
    return {"endpoint_id": owner.ids["endpoint_id"]}


def seen(program: Program, owner: Owner) -> dict[str, Any]:
    """Everything that an owner can see of its things."""
    paths = [line.split(" ")[1].format(**owner.ids) for line in READING]
    return {path: program.get(path, key=owner.key).json for path in (*paths, "/v1/audit", "/v1/keys")}


def without(answer: Answer, ids: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The answer without the requested id and the correlation id."""
    text = answer.body.decode()
    for value in ids.values():
        text = text.replace(value, "<id>")
    return text, {name: value for name, value in answer.headers.items() if name not in ("x-correlation-id", "date")}
