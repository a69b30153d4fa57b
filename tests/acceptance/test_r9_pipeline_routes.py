"""R9.4: the routes of pipelines, served by Doorstep and mounted into an application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException

from doorstep import Permanent
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.listing import AuditFilter
from doorstep.model.org import Org, Role
from doorstep.web import router
from tests.acceptance.protocols import Protocols, failing
from tests.support.api import Api, listening, serving
from tests.support.builders import new_id
from tests.support.loop_receiver import Receiver
from tests.support.scene import Scene
from tests.support.shortcuts import put

ENTITIES = "/v1/pipelines/protocol/entities"


@pytest.fixture
async def protocols(database_url: str, receiver: Receiver) -> AsyncIterator[Protocols]:
    """The pipeline in a scene's only process."""
    scene = Scene(database_url, receiver)
    made = Protocols(scene)
    await made.open()
    yield made
    await scene.close()


@pytest.fixture
async def api(protocols: Protocols) -> AsyncIterator[Api]:
    async with serving(protocols.scene) as it:
        yield it


async def dead(protocols: Protocols, entity_id: str = "p1") -> None:
    protocols.does["extracting"] = failing(Permanent("INVALID_FORMAT", "This is no document."))
    await protocols.start(entity_id, path="a.txt")
    await protocols.until("dead_letter", entity_id=entity_id)
    protocols.does["extracting"] = lambda _: None


# -- served ------------------------------------------------------------------------------------------------


async def test_a_retry_answers_that_it_is_queued_and_the_entity_goes_through_again(
    protocols: Protocols, api: Api
) -> None:
    await dead(protocols)
    answer = await api.post(f"{ENTITIES}/p1/retry", {"reason": "a better scan"})
    assert (answer.status, answer.json) == (200, {"status": "retry_queued", "protocol_id": "p1"})
    await protocols.until("pending_review")
    (line,) = (await api.get("/v1/audit?action=entity.retry")).json["audit"]
    assert (line["subjects"], line["reason"]) == (["protocol", "p1"], "a better scan")
    assert api.key.startswith(line["actor_id"])


async def test_what_cannot_be_retried_is_a_400_that_names_its_state_and_what_is_unknown_a_404(
    protocols: Protocols, api: Api
) -> None:
    await protocols.start()
    await protocols.until("pending_review")
    answer = await api.post(f"{ENTITIES}/p1/retry")
    assert (answer.status, answer.json["type"]) == (400, "urn:doorstep:problem:not_retryable")
    assert "protocol p1 is pending_review" in answer.json["detail"]
    for path in (f"{ENTITIES}/p2/retry", "/v1/pipelines/other/entities/p1/retry"):
        assert (await api.post(path)).status == 404


async def test_an_entity_is_read_with_its_error_and_its_history(protocols: Protocols, api: Api) -> None:
    await dead(protocols)
    entity = (await api.get(f"{ENTITIES}/p1")).json
    assert (entity["entity_id"], entity["status"], entity["data"]) == ("p1", "dead_letter", {"path": "a.txt"})
    assert entity["error_reason"] == "This is no document."
    assert entity["metadata"]["error"]["code"] == "INVALID_FORMAT"
    assert entity["created_at"] < entity["changed_at"] and entity["changed_at"].endswith("Z")
    history = (await api.get(f"{ENTITIES}/p1/history")).json["history"]
    assert [line["new_status"] for line in history] == ["uploaded", "extracting", "extraction_failed", "dead_letter"]


async def test_a_list_hides_the_archived_and_comes_in_pages(protocols: Protocols, api: Api) -> None:
    for n in range(3):
        await protocols.start(f"p{n}")
        await protocols.until("pending_review", entity_id=f"p{n}")
    await dead(protocols, "p3")
    protocols.scene.leap(8 * 86_400)

    async def names(query: str) -> list[str]:
        return [one["entity_id"] for one in await api.all(f"{ENTITIES}{query}", "entities", 2)]

    assert await names("") == ["p2", "p1", "p0"]
    assert await names("?archived=true") == ["p3", "p2", "p1", "p0"]
    assert await names("?status=archived") == ["p3"]
    assert await names("?status=lost") == [], "nothing has it, from former times either"
    assert (await api.get(f"{ENTITIES}?cursor=zz")).status == 422


async def test_a_review_is_decided_once(protocols: Protocols, api: Api) -> None:
    for name in ("p1", "p2"):
        await protocols.start(name)
        await protocols.until("pending_review", entity_id=name)
    for act in ("approve", "reject"):
        assert (await api.post(f"{ENTITIES}/p1/{act}", {"gate": "second_review"})).status == 409
    assert (await api.post(f"{ENTITIES}/p1/approve", {"gate": "pending_review"})).json["status"] == "complete"
    rejected = (await api.post(f"{ENTITIES}/p2/reject", {"reason": "unreadable"})).json
    assert (rejected["status"], rejected["error_reason"].endswith(": unreadable")) == ("dead_letter", True)
    for path in ("p1/approve", "p1/reject", "p2/approve"):
        assert (await api.post(f"{ENTITIES}/{path}")).status == 409


async def test_a_deleted_entity_is_gone_with_its_history_and_that_is_audited(protocols: Protocols, api: Api) -> None:
    await dead(protocols)
    viewer = api.with_key((await protocols.doorstep.components.keys.create(DEFAULT_ORG, "v", Role.VIEWER, "ops"))[1])
    assert (await viewer.request("DELETE", f"{ENTITIES}/p1")).status == 403
    assert (await api.request("DELETE", f"{ENTITIES}/p1")).status == 204
    for path in ("", "/history"):
        assert (await api.get(f"{ENTITIES}/p1{path}")).status == 404
    assert (await api.request("DELETE", f"{ENTITIES}/p1")).status == 404
    (line,) = (await api.get("/v1/audit?action=entity.delete")).json["audit"]
    assert (line["subjects"], line["result"]) == (["protocol", "p1"], "dead_letter")


async def test_the_pipelines_are_described(protocols: Protocols, api: Api) -> None:
    (pipeline,) = (await api.get("/v1/pipelines")).json["pipelines"]
    assert pipeline["statuses"] == [
        "uploaded",
        "extracting",
        "grounding",
        "pending_review",
        "complete",
        "extraction_failed",
        "grounding_failed",
        "dead_letter",
        "archived",
    ]
    assert pipeline["gates"] == ["pending_review"]
    assert pipeline["retryable"] == ["extraction_failed", "grounding_failed", "dead_letter", "archived"]


async def test_roles_decide_who_looks_and_who_acts(protocols: Protocols, api: Api) -> None:
    await dead(protocols)
    asked = {
        Role.VIEWER: (200, 403),
        Role.PUBLISHER: (403, 403),
        Role.OPERATOR: (200, 200),
    }
    for role, (looks, acts) in asked.items():
        _, key = await protocols.doorstep.components.keys.create(DEFAULT_ORG, role.value, role, "ops")
        caller = api.with_key(key)
        assert (await caller.get(f"{ENTITIES}/p1")).status == looks
        assert (await caller.post(f"{ENTITIES}/p1/retry")).status == acts


async def test_another_organization_sees_nothing_of_it(protocols: Protocols, api: Api) -> None:
    await dead(protocols)
    other = Org(org_id=new_id(), name="other", created_at=0)
    await put(protocols.doorstep.components.store, other)
    _, key = await protocols.doorstep.components.keys.create(other.org_id, "theirs", Role.ADMIN, "ops")
    stranger = api.with_key(key)
    assert (await stranger.get("/v1/pipelines")).json["pipelines"] == []
    for path in ("", "/p1", "/p1/history"):
        assert (await stranger.get(f"{ENTITIES}{path}")).status == 404
    for act in ("retry", "approve", "reject"):
        assert (await stranger.post(f"{ENTITIES}/p1/{act}")).status == 404
    assert (await protocols.pipeline.entity("p1")).status == "dead_letter"


# -- mounted -----------------------------------------------------------------------------------------------


def signed_in(authorization: Annotated[str, Header()] = "") -> None:
    """The application's own access check."""
    if authorization != "Bearer of-the-application":
        raise HTTPException(401)


@pytest.fixture
async def mounted(protocols: Protocols) -> AsyncIterator[Api]:
    """An application that mounts the pipeline's routes. It does not use the API's key header."""
    application = FastAPI()
    routes = router(protocols.pipeline, actor=lambda request: request.headers["authorization"][:6])
    application.include_router(routes, prefix="/protocols", dependencies=[Depends(signed_in)])
    async with listening(application) as port:
        yield Api(port, "")


SIGNED_IN = {"authorization": "Bearer of-the-application"}
JSON = {"content_type": "application/json"}


async def test_an_application_has_the_routes_behind_its_own_sign_in(protocols: Protocols, mounted: Api) -> None:
    await dead(protocols)
    for method, path in (("GET", "/protocols/"), ("GET", "/protocols/p1"), ("POST", "/protocols/p1/retry")):
        assert (await mounted.request(method, path)).status == 401
    assert (await protocols.pipeline.entity("p1")).status == "dead_letter"
    listed = (await mounted.request("GET", "/protocols/", **SIGNED_IN)).json
    assert [(one["protocol_id"], one["status"]) for one in listed["protocols"]] == [("p1", "dead_letter")]
    assert listed["pagination"] == {"limit": 50, "cursor": None, "has_more": False}
    answer = await mounted.request("POST", "/protocols/p1/retry", **SIGNED_IN)
    assert (answer.status, answer.json) == (200, {"status": "retry_queued", "protocol_id": "p1"})
    (line,) = (await protocols.doorstep.components.store.page(DEFAULT_ORG, AuditFilter(action="entity.retry"))).items
    assert line.actor == "Bearer"


async def test_a_mounted_retry_is_a_400_where_the_state_is_not_retryable_and_a_404_where_there_is_none(
    protocols: Protocols, mounted: Api
) -> None:
    await protocols.start()
    await protocols.until("pending_review")
    refused = await mounted.request("POST", "/protocols/p1/retry", **SIGNED_IN)
    assert refused.status == 400 and "is pending_review" in refused.json["detail"]
    assert (await mounted.request("POST", "/protocols/unknown/retry", **SIGNED_IN)).status == 404
    assert (await mounted.request("GET", "/protocols/unknown", **SIGNED_IN)).status == 404
    elsewhere = await mounted.request("POST", "/protocols/p1/approve", {"gate": "second_review"}, **SIGNED_IN, **JSON)
    assert elsewhere.status == 409
    assert (await mounted.request("POST", "/protocols/p1/approve", **SIGNED_IN)).json["status"] == "complete"
    assert (await mounted.request("POST", "/protocols/p1/reject", **SIGNED_IN)).status == 409
    senseless = await mounted.request("GET", "/protocols/?limit=0", **SIGNED_IN)
    assert (senseless.status, senseless.headers["content-type"]) == (422, "application/problem+json")
    assert senseless.json["errors"][0]["field"] == "limit"


async def test_a_mounted_application_deletes_an_entity(protocols: Protocols, mounted: Api) -> None:
    await dead(protocols)
    assert (await mounted.request("DELETE", "/protocols/p1")).status == 401
    assert (await mounted.request("DELETE", "/protocols/p1", **SIGNED_IN)).status == 204
    assert (await mounted.request("DELETE", "/protocols/p1", **SIGNED_IN)).status == 404
    assert (await mounted.request("GET", "/protocols/p1", **SIGNED_IN)).status == 404
