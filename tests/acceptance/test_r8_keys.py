"""R7.6 and R8.5: keys, roles, organizations."""

from __future__ import annotations

from uuid import uuid4

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.clock import DAY, seconds, to_iso
from doorstep.model.listing import OrgKeys
from doorstep.model.org import Role
from doorstep.operations.keys import CACHE_SECONDS
from tests.support.api import Api, lasting
from tests.support.scene import Scene


async def test_a_new_key_is_shown_once_and_kept_only_as_a_hash(scene: Scene, api: Api) -> None:
    answer = await api.post("/v1/keys", {"name": "reports", "role": "viewer"})
    assert answer.status == 201
    made = answer.json
    assert made["key"].startswith("dsk_") and len(made["key"]) > 40
    assert made["prefix"] == made["key"][:12]
    shown = await api.get("/v1/keys")
    assert made["key"].encode() not in shown.body
    assert made["key_id"] in {key["key_id"] for key in shown.json["keys"]}
    (kept,) = [
        key for key in await scene.doorstep.components.store.find(DEFAULT_ORG, OrgKeys()) if key.name == "reports"
    ]
    assert made["key"] not in repr(kept)
    assert (await api.with_key(made["key"]).get("/v1/endpoints")).status == 200


async def test_a_revoked_key_opens_nothing_any_more(scene: Scene, api: Api) -> None:
    made = (await api.post("/v1/keys", {"name": "a", "role": "admin"})).json
    theirs = api.with_key(made["key"])
    assert (await theirs.get("/v1/keys")).status == 200
    assert (await api.delete(f"/v1/keys/{made['key_id']}")).status == 204
    assert (await theirs.get("/v1/keys")).status == 401
    assert (await api.delete(f"/v1/keys/{made['key_id']}")).status == 204
    (listed,) = [key for key in await api.all("/v1/keys", "keys") if key["key_id"] == made["key_id"]]
    assert listed["revoked_at"] is not None


async def test_another_process_that_has_just_seen_a_key_knows_of_its_revocation_within_seconds(scene: Scene) -> None:
    one, two = scene.doorstep, await scene.open()
    record, key = await one.components.keys.create(DEFAULT_ORG, "a", Role.ADMIN, "ops")
    await one.components.keys.create(DEFAULT_ORG, "b", Role.ADMIN, "ops")
    assert await two.components.keys.authenticate(key) is not None
    await one.components.keys.revoke(DEFAULT_ORG, record.key_id, "ops")
    assert await one.components.keys.authenticate(key) is None
    scene.leap(CACHE_SECONDS + 0.1)
    assert await two.components.keys.authenticate(key) is None


async def test_an_expired_key_opens_nothing_any_more(scene: Scene, api: Api) -> None:
    expires_at = to_iso(scene.clock.now() + DAY)
    made = (await api.post("/v1/keys", {"name": "a", "role": "viewer", "expires_at": expires_at})).json
    assert made["expires_at"] == expires_at
    theirs = api.with_key(made["key"])
    assert (await theirs.get("/v1/endpoints")).status == 200
    scene.leap(86_401)
    assert (await theirs.get("/v1/endpoints")).status == 401


async def test_the_last_admin_key_cannot_be_revoked(scene: Scene, api: Api) -> None:
    org = (await api.post("/v1/orgs", {"name": "shop"})).json
    theirs = api.with_key(org["admin_key"]["key"])
    path = f"/v1/keys/{org['admin_key']['key_id']}"
    refused = await theirs.delete(path)
    assert refused.status == 409 and "create another one" in refused.json["detail"]
    await theirs.post("/v1/keys", {"name": "second", "role": "admin"})
    assert (await theirs.delete(path)).status == 204


@lasting
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "viewer"}, "name"),
        ({"name": "", "role": "viewer"}, "name"),
        ({"name": "a\x00", "role": "viewer"}, "name"),
        ({"name": "x" * 201, "role": "viewer"}, "name"),
        ({"name": "a"}, "role"),
        ({"name": "a", "role": "king"}, "role"),
        ({"name": "a", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "a", "role": "viewer", "expires_at": "2099-01-01T00:00:00"}, "expires_at"),
        ({"name": "a", "role": "viewer", "expires_at": 4102444800}, "expires_at"),
        ({"name": "a", "role": "viewer", "key": "mine"}, "key"),
    ],
)
async def test_a_key_that_cannot_be_made_names_the_field(lasting_api: Api, body: dict[str, str], field: str) -> None:
    answer = await lasting_api.post("/v1/keys", body)
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)


async def test_keys_are_listed_page_by_page_in_the_order_of_their_creation(api: Api) -> None:
    made = [(await api.post("/v1/keys", {"name": f"{n}", "role": "viewer"})).json["key_id"] for n in range(5)]
    listed = await api.all("/v1/keys", "keys", 2)
    assert [key["key_id"] for key in listed][-5:] == made
    assert (await api.get("/v1/keys?limit=2")).json["pagination"]["total_count"] == len(listed)
    assert (await api.get("/v1/keys?cursor=rubbish")).status == 422


async def test_a_publisher_sends_and_reads_the_status_and_neither_sees_nor_takes_what_is_in_the_inbox(api: Api) -> None:
    key = (await api.post("/v1/keys", {"name": "shop", "role": "publisher"})).json["key"]
    publisher = api.with_key(key)
    event_id = await publisher.send("polled")
    assert (await publisher.status(event_id))["status"] == "received"
    looked, taken = await publisher.get("/v1/inbox"), await publisher.post(f"/v1/events/{event_id}/ack")
    assert (looked.status, taken.status) == (403, 403)
    assert "use a key with the role admin or operator or viewer" in looked.json["detail"]
    assert "use a key with the role admin or operator" in taken.json["detail"]
    assert (await api.status(event_id))["status"] == "received"


async def test_a_consumer_sends_reads_the_status_and_works_off_the_inbox_and_does_nothing_else(api: Api) -> None:
    consumer = api.with_key((await api.post("/v1/keys", {"name": "worker", "role": "consumer"})).json["key"])
    event_id = await consumer.send("polled", payload={"n": 1})
    assert (await consumer.status(event_id))["status"] == "received"
    assert [event["payload"] for event in await consumer.all("/v1/inbox", "events")] == [{"n": 1}]
    assert (await consumer.get("/v1/inbox?status=failed")).status == 200
    (leased,) = (await consumer.post("/v1/inbox/lease")).json["events"]
    token = {"lease_token": leased["lease_token"]}
    assert (await consumer.post(f"/v1/events/{event_id}/nack", token)).status == 200
    assert (await consumer.post(f"/v1/events/{event_id}/ack")).status == 200
    for path in ("/v1/events", f"/v1/events/{event_id}", "/v1/dead-letters", "/v1/audit", "/v1/keys"):
        assert (await consumer.get(path)).status == 403, path
    assert (await consumer.request("DELETE", f"/v1/events/{event_id}")).status == 403


async def test_a_viewer_sees_the_inbox_and_takes_nothing_out_of_it(api: Api) -> None:
    viewer = api.with_key((await api.post("/v1/keys", {"name": "eyes", "role": "viewer"})).json["key"])
    event_id = await api.send("polled")
    assert [event["event_id"] for event in await viewer.all("/v1/inbox", "events")] == [event_id]
    for path in (f"/v1/events/{event_id}/ack", f"/v1/events/{event_id}/nack", "/v1/inbox/lease"):
        assert (await viewer.post(path)).status == 403, path


# -- organizations -----------------------------------------------------------------------------------------


async def test_a_new_organization_has_an_admin_of_its_own_and_sees_nothing_of_others(scene: Scene, api: Api) -> None:
    await api.endpoint(scene.receiver.url())
    event_id = await api.send()
    answer = await api.post("/v1/orgs", {"name": "shop"})
    assert answer.status == 201
    theirs = api.with_key(answer.json["admin_key"]["key"])
    assert [key["role"] for key in await theirs.all("/v1/keys", "keys")] == ["admin"]
    for path, plural in (("events", "events"), ("endpoints", "endpoints"), ("inbox", "events")):
        assert await theirs.all(f"/v1/{path}", plural) == []
    assert (await theirs.get(f"/v1/events/{event_id}")).status == 404
    assert {line["action"] for line in await theirs.all("/v1/audit", "audit")} == {"key.create"}
    own = await theirs.send()
    assert (await theirs.status(own))["status"] == "received", "the other organization's endpoint takes nothing of it"
    names = {org["name"]: org["org_id"] for org in await api.all("/v1/orgs", "orgs", 1)}
    assert names == {"default": str(DEFAULT_ORG), "shop": answer.json["org_id"]}


async def test_only_admins_of_the_default_organization_make_organizations(api: Api) -> None:
    theirs = api.with_key((await api.post("/v1/orgs", {"name": "shop"})).json["admin_key"]["key"])
    operator = api.with_key((await api.post("/v1/keys", {"name": "a", "role": "operator"})).json["key"])
    for stranger in (theirs, operator):
        assert (await stranger.post("/v1/orgs", {"name": "mine"})).status == 403
        assert (await stranger.get("/v1/orgs")).status == 403
    assert len(await api.all("/v1/orgs", "orgs")) == 2


async def test_the_keys_of_another_organization_are_not_there(api: Api) -> None:
    theirs = api.with_key((await api.post("/v1/orgs", {"name": "shop"})).json["admin_key"]["key"])
    mine = (await api.post("/v1/keys", {"name": "a", "role": "viewer"})).json
    foreign, unknown = await theirs.delete(f"/v1/keys/{mine['key_id']}"), await theirs.delete(f"/v1/keys/{uuid4()}")
    assert (foreign.status, unknown.status) == (404, 404)
    assert foreign.json["type"] == unknown.json["type"]
    assert (await api.with_key(mine["key"]).get("/v1/endpoints")).status == 200


async def test_a_key_remembered_for_seconds_still_ends_at_its_very_end(scene: Scene, api: Api) -> None:
    expires_at = to_iso(scene.clock.now() + seconds(2))
    made = (await api.post("/v1/keys", {"name": "a", "role": "viewer", "expires_at": expires_at})).json
    theirs = api.with_key(made["key"])
    assert (await theirs.get("/v1/endpoints")).status == 200
    scene.leap(2.1)
    assert (await theirs.get("/v1/endpoints")).status == 401
