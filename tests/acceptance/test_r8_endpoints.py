"""R8.4 and R8.6: endpoints over HTTP: changes, tests, secret rotation, envelopes, circuits."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.support.api import Api, lasting
from tests.support.loop_receiver import Request
from tests.support.scene import Scene, until
from tests.support.signatures import verify


async def test_endpoints_are_listed_in_the_order_of_their_creation_page_by_page(scene: Scene, api: Api) -> None:
    ids = [(await api.endpoint(scene.receiver.url(), name=f"shop {n}"))["endpoint_id"] for n in range(5)]
    await api.post(f"/v1/endpoints/{ids[1]}/pause")
    await api.delete(f"/v1/endpoints/{ids[4]}")
    assert [one["endpoint_id"] for one in await api.all("/v1/endpoints", "endpoints", 2)] == ids[:4]
    assert [one["endpoint_id"] for one in await api.all("/v1/endpoints?state=paused", "endpoints")] == [ids[1]]
    assert (await api.get("/v1/endpoints?state=lost")).status == 422


# -- changing ----------------------------------------------------------------------------------------------


async def test_a_change_touches_only_the_fields_that_are_given(scene: Scene, api: Api) -> None:
    before = await api.endpoint(scene.receiver.url(), rate_per_second=5, headers={"X-A": "1"}, policy="quick")
    answer = await api.patch(f"/v1/endpoints/{before['endpoint_id']}", {"timeout_seconds": 3, "policy": [7]})
    assert answer.status == 200, answer.body
    changed = {"timeout_seconds", "policy", "version", "updated_at"}
    assert {name for name in answer.json if answer.json[name] != before[name]} == changed
    assert (answer.json["timeout_seconds"], answer.json["policy"]["delays"]) == (3, [7])
    assert (before["version"], answer.json["version"]) == (1, 2)
    assert "secret" not in answer.json
    await api.send()
    await scene.until_received(1)
    request = scene.receiver.requests[0]
    assert request.headers["x-a"] == "1"
    _verified(before["secret"], request)


async def test_null_puts_a_field_back_to_its_default(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url(), rate_per_second=5, event_types=["a.*"], policy="quick")
    body = {"rate_per_second": None, "event_types": None, "policy": None, "circuit": None}
    answer = await api.patch(f"/v1/endpoints/{endpoint['endpoint_id']}", body)
    assert answer.json["rate_per_second"] is None
    assert answer.json["event_types"] == ["*"]
    assert answer.json["policy"] is None
    assert answer.json["circuit"]["failures_max"] == 5


async def test_a_url_can_be_changed_into_a_handler_and_back(scene: Scene, api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint(scene.receiver.url()))['endpoint_id']}"
    assert (await api.patch(path, {"handler": "store"})).status == 422
    assert (await api.patch(path, {"handler": "store", "url": None})).json["handler"] == "store"
    assert (await api.patch(path, {"handler": None, "url": scene.receiver.url("/new")})).json["handler"] is None


@lasting
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"version": 1}, "body"),
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"url": "https://10.0.0.1/"}, "url"),
        ({"url": None}, "url"),
        ({"colour": "red"}, "colour"),
        ({"timeout_seconds": 10_000}, "timeout_seconds"),
        ({"headers": {"Host": "evil"}}, "headers"),
        ({"headers": {"X-Own": ""}}, "headers"),
        ({"headers": {"X-Own": " "}}, "headers"),
        ({"secret": "whsec_mine"}, "secret"),
        ({"signing": "v1a"}, "signing"),
    ],
)
async def test_a_change_that_cannot_work_is_refused_and_changes_nothing(
    lasting_scene: Scene, lasting_api: Api, body: dict[str, Any], field: str
) -> None:
    endpoint = await lasting_api.endpoint(lasting_scene.receiver.url())
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    answer = await lasting_api.patch(path, body)
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)
    assert (await lasting_api.get(path)).json["version"] == 1


async def test_of_two_changes_made_for_the_same_version_one_is_refused(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    answers = await asyncio.gather(
        *(api.patch(path, {"name": name, "version": endpoint["version"]}) for name in ("one", "two", "three"))
    )
    assert sorted(answer.status for answer in answers) == [200, 409, 409]
    (winner,) = (answer.json for answer in answers if answer.status == 200)
    assert (await api.get(path)).json == winner


async def test_changes_of_different_fields_at_the_same_time_are_all_kept(scene: Scene, api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint(scene.receiver.url()))['endpoint_id']}"
    changes = [{"name": "new"}, {"timeout_seconds": 2}, {"concurrency_max": 7}, {"rate_per_second": 9}]
    answers = await asyncio.gather(*(api.patch(path, change) for change in changes))
    assert {answer.status for answer in answers} == {200}
    now = (await api.get(path)).json
    assert (now["name"], now["timeout_seconds"], now["concurrency_max"], now["rate_per_second"]) == ("new", 2, 7, 9)
    assert now["version"] == 5


async def test_a_deleted_endpoint_cannot_be_changed(scene: Scene, api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint(scene.receiver.url()))['endpoint_id']}"
    await api.delete(path)
    assert (await api.patch(path, {"name": "new"})).status == 409
    for act in ("pause", "resume", "test", "rotate-secret"):
        assert (await api.post(f"{path}/{act}")).status == 409, act
    assert (await api.delete(path)).status == 409


# -- holding and resuming ----------------------------------------------------------------------------------


async def test_an_endpoint_is_paused_with_a_reason_that_its_deliveries_show(scene: Scene, api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint(scene.receiver.url()))['endpoint_id']}"
    assert (await api.post(f"{path}/pause", {"reason": "moving house"})).json["state_reason"] == "moving house"
    held = {"reason": "The endpoint is paused: moving house", "until": None}
    assert (await api.delivery_of(await api.send()))["held"] == held


async def test_on_resuming_what_is_too_old_can_be_skipped_and_is_found_among_the_dead_letters(
    scene: Scene, api: Api
) -> None:
    path = f"/v1/endpoints/{(await api.endpoint(scene.receiver.url()))['endpoint_id']}"
    await api.post(f"{path}/pause")
    old, new = await api.send(), await api.send()
    created_at = (await api.get(f"/v1/events/{new}")).json["created_at"]
    assert (await api.post(f"{path}/resume", {"skip_older_than": created_at})).json["state"] == "active"
    await api.until_status(new, "delivered")
    (letter,) = await api.all("/v1/dead-letters", "dead_letters")
    assert (letter["event_id"], letter["error"]) == (old, "SKIPPED")


async def test_a_resume_at_an_impossible_rate_names_the_field(scene: Scene, api: Api) -> None:
    path = f"/v1/endpoints/{(await api.endpoint(scene.receiver.url()))['endpoint_id']}"
    for body, field in (
        ({"drain_per_second": 0}, "drain_per_second"),
        ({"drain_per_second": "fast"}, "drain_per_second"),
        ({"skip_older_than": "long ago"}, "skip_older_than"),
        ({"skip_older_than": 1700000000}, "skip_older_than"),
        ({"colour": 1}, "colour"),
    ):
        answer = await api.post(f"{path}/resume", body)
        assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)


# -- testing -----------------------------------------------------------------------------------------------


async def test_a_test_goes_the_ordinary_way_to_this_endpoint_alone(scene: Scene, api: Api) -> None:
    await api.endpoint(scene.receiver.url("/other"))
    endpoint = await api.endpoint(scene.receiver.url("/tested"), event_types=["order.*"])
    answer = await api.post(f"/v1/endpoints/{endpoint['endpoint_id']}/test")
    assert (answer.status, answer.json["deliveries"]) == (202, 1)
    await api.until_status(answer.json["event_id"], "delivered")
    (request,) = scene.receiver.requests
    assert (request.path, request.event_id) == ("/tested", answer.json["event_id"])
    _verified(endpoint["secret"], request)
    assert (await api.get(f"/v1/events/{request.event_id}")).json["event_type"] == "doorstep.test"


async def test_a_test_may_have_a_type_and_a_payload_of_its_own_kept_byte_for_byte(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    body = b'{"event_type": "order.paid", "payload": {"n":  1.50}}'
    assert (await api.post(f"/v1/endpoints/{endpoint['endpoint_id']}/test", body)).status == 202
    await scene.until_received(1)
    assert scene.receiver.requests[0].body == b'{"n":  1.50}'
    for wrong, field in (({"event_type": "no type"}, "event_type"), ({"paylod": 1}, "paylod")):
        refused = await api.post(f"/v1/endpoints/{endpoint['endpoint_id']}/test", wrong)
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, field)


# -- signatures --------------------------------------------------------------------------------------------


async def test_after_a_rotation_both_secrets_sign_until_the_overlap_ends(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    rotated = (await api.post(f"{path}/rotate-secret", {"overlap_seconds": 3600})).json
    assert rotated["secret"].startswith("whsec_") and rotated["secret"] != endpoint["secret"]
    request = await _sent(scene, api)
    _verified(rotated["secret"], request)
    _verified(endpoint["secret"], request)
    scene.leap(3601)
    request = await _sent(scene, api)
    assert verify([rotated["secret"]], request.headers, request.body, _now(scene))
    assert not verify([endpoint["secret"]], request.headers, request.body, _now(scene))


async def test_a_rotation_without_overlap_ends_the_old_secret_at_once(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    rotated = (await api.post(f"/v1/endpoints/{endpoint['endpoint_id']}/rotate-secret", {"overlap_seconds": 0})).json
    assert rotated["old_secret_expires_at"] is None
    request = await _sent(scene, api)
    _verified(rotated["secret"], request)
    with pytest.raises(WebhookVerificationError):
        _verified(endpoint["secret"], request)


async def test_a_rotation_beyond_the_fifth_secret_is_refused_and_those_that_were_promised_to_sign_go_on(
    scene: Scene, api: Api
) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    path = f"/v1/endpoints/{endpoint['endpoint_id']}/rotate-secret"
    rotated = [(await api.post(path)).json for _ in range(4)]
    refused = await api.post(path)
    assert refused.status == 409
    assert f"until {rotated[0]['old_secret_expires_at']}" in refused.json["detail"], "when there will be room"
    assert "overlap_seconds to 0" in refused.json["detail"], "what can be done immediately"
    request = await _sent(scene, api)
    secrets = [endpoint["secret"], *(one["secret"] for one in rotated)]
    assert len(request.headers["webhook-signature"].split(" ")) == len(secrets) == 5
    for secret in secrets:
        _verified(secret, request)


async def test_a_leaked_secret_can_be_ended_however_many_sign(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    path = f"/v1/endpoints/{endpoint['endpoint_id']}/rotate-secret"
    for _ in range(4):
        await api.post(path)
    newest = (await api.post(path, {"overlap_seconds": 0})).json["secret"]
    request = await _sent(scene, api)
    assert len(request.headers["webhook-signature"].split(" ")) == 1
    _verified(newest, request)


async def test_a_rotation_is_possible_again_when_the_oldest_secret_has_ended(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url())
    path = f"/v1/endpoints/{endpoint['endpoint_id']}/rotate-secret"
    assert [(await api.post(path, {"overlap_seconds": 60})).status for _ in range(5)] == [200] * 4 + [409]
    scene.leap(61)
    assert (await api.post(path)).status == 200


async def test_an_endpoint_can_have_a_key_pair_of_which_only_the_public_half_is_ever_shown(
    scene: Scene, api: Api
) -> None:
    endpoint = await api.endpoint(scene.receiver.url(), signing="v1a")
    assert endpoint["secret"] == endpoint["public_key"]
    assert endpoint["public_key"].startswith("whpk_")
    request = await _sent(scene, api)
    assert verify([endpoint["public_key"]], request.headers, request.body, _now(scene))
    assert (await api.get(f"/v1/endpoints/{endpoint['endpoint_id']}")).json["public_key"] == endpoint["public_key"]
    path = f"/v1/endpoints/{endpoint['endpoint_id']}/rotate-secret"
    rotated = (await api.post(path, {"signing": "v1", "overlap_seconds": 60})).json
    request = await _sent(scene, api)
    _verified(rotated["secret"], request)
    assert verify([endpoint["public_key"]], request.headers, request.body, _now(scene))
    assert (await api.post(path, {"signing": "v2"})).status == 422
    assert (await api.post(path, {"overlap_seconds": -1})).status == 422


async def test_an_envelope_surrounds_the_exact_payload_and_is_what_is_signed(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url(), envelope=True)
    body = b'{"event_type": "order.paid", "payload": {"n":  1.50, "e": "\xc3\xa9"}}'
    event_id = (await api.post("/v1/events", body)).json["event_id"]
    await scene.until_received(1)
    (request,) = scene.receiver.requests
    assert request.body.endswith(b'"data":{"n":  1.50, "e": "\xc3\xa9"}}')
    created_at = (await api.get(f"/v1/events/{event_id}")).json["created_at"]
    assert json.loads(request.body) == {
        "type": "order.paid",
        "timestamp": created_at,
        "data": {"n": 1.5, "e": "é"},
    }
    _verified(endpoint["secret"], request)


async def test_a_secret_is_shown_when_it_is_made_and_never_again(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url(), headers={"Authorization": "Bearer t0k3n"})
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    rotated = (await api.post(f"{path}/rotate-secret")).json["secret"]
    shown = [await api.get(path), await api.get("/v1/endpoints"), await api.get("/v1/audit")]
    shown += [await api.patch(path, {"name": "b"}), await api.post(f"{path}/pause"), await api.post(f"{path}/resume")]
    for answer in shown:
        for secret in (endpoint["secret"], rotated, "t0k3n"):
            assert secret.encode() not in answer.body


# -- circuits ----------------------------------------------------------------------------------------------


async def test_the_circuit_shows_its_state_and_every_change_with_its_reason(scene: Scene, api: Api) -> None:
    scene.receiver.says(503)
    endpoint = await api.endpoint(scene.receiver.url(), policy=[60], circuit={"failures_max": 2, "open_seconds": 30})
    path = f"/v1/endpoints/{endpoint['endpoint_id']}/circuit"
    closed = (await api.get(path)).json
    assert (closed["state"], closed["failures"], closed["history"]) == ("closed", 0, [])
    for _ in range(2):
        await api.send()

    async def opened() -> bool:
        return bool((await api.get(path)).json["state"] == "open")

    await until(opened, "an open circuit")
    circuit = (await api.get(path)).json
    assert circuit["failures"] == 2
    assert circuit["until"] is not None and circuit["failing_since"] is not None
    (change,) = circuit["history"]
    assert (change["old_state"], change["new_state"]) == ("closed", "open")
    assert (await api.get(f"/v1/endpoints/{uuid4()}/circuit")).status == 404


async def _sent(scene: Scene, api: Api) -> Request:
    before = len(scene.receiver.requests)
    await api.send()
    await scene.until_received(before + 1)
    return scene.receiver.requests[-1]


def _now(scene: Scene) -> float:
    return scene.clock.now() / 1_000_000


def _verified(secret: str, request: Request) -> None:
    """Verify a request with the library that receivers use."""
    Webhook(secret).verify(request.body, dict(request.headers))


# -- names, addresses, own secrets ---------------------------------------------------------------------------------


async def test_a_name_that_is_taken_is_a_409_with_the_id_of_its_endpoint_until_that_is_deleted(api: Api) -> None:
    first = (await api.endpoint("https://shop.example/", name="crm"))["endpoint_id"]
    second = (await api.endpoint("https://shop.example/"))["endpoint_id"]
    body = {"name": "crm", "url": "https://crm.example/"}
    for answer in (await api.post("/v1/endpoints", body), await api.patch(f"/v1/endpoints/{second}", {"name": "crm"})):
        assert answer.status == 409 and first in answer.json["detail"]
    await api.delete(f"/v1/endpoints/{first}")
    assert (await api.post("/v1/endpoints", body)).status == 201


async def test_plain_http_to_a_name_is_refused_where_its_deliveries_would_be(scene: Scene, api: Api) -> None:
    """The scene allows 127.0.0.0/8, where `localhost` is."""
    inside, outside = "http://localhost:9/", "http://outside.example:9/"
    path = f"/v1/endpoints/{(await api.endpoint(inside))['endpoint_id']}"
    with resolving("outside.example", "8.8.8.8"):
        for answer in (
            await api.post("/v1/endpoints", {"name": "out", "url": outside}),
            await api.patch(path, {"url": outside}),
            await api.post("/v1/endpoints", {"name": "out", "destination": {"kind": "http", "url": outside}}),
        ):
            assert answer.status == 422
            (error,) = answer.json["errors"]
            assert error["field"] in ("url", "destination.url")
            assert "8.8.8.8" in error["message"] and "DOORSTEP_ALLOW_HTTP=true" in error["message"]
    with resolving("outside.example", "127.0.0.1"):
        assert (await api.patch(path, {"url": outside})).status == 200
    with resolving("outside.example", "8.8.8.8"):
        assert (await api.patch(path, {"url": outside, "description": "same URL"})).status == 200, "it is not changed"


@contextmanager
def resolving(host: str, address: str) -> Iterator[None]:
    """Let a host name have this address."""
    real = socket.getaddrinfo

    def found(name: Any, *arguments: Any, **options: Any) -> Any:
        return real(address if name == host else name, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", found)
        yield


OWN, OWN_NEXT = (f"whsec_{base64.b64encode(hashlib.sha256(text).digest()).decode()}" for text in (b"a", b"b"))
OWN_KEY = f"whsk_{base64.b64encode(hashlib.sha256(b'c').digest()).decode()}"


async def test_an_own_secret_signs_from_the_first_request_on_and_is_never_shown(scene: Scene, api: Api) -> None:
    endpoint = await api.endpoint(scene.receiver.url(), secret=OWN)
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    await api.send()
    await scene.until_received(1)
    _verified(OWN, scene.receiver.requests[0])
    rotated = await api.post(f"{path}/rotate-secret", {"secret": OWN_NEXT})
    assert (endpoint["secret"], rotated.json["secret"]) == ("", "")
    await api.send()
    await scene.until_received(2)
    for secret in (OWN, OWN_NEXT):
        _verified(secret, scene.receiver.requests[1])
    shown = [endpoint, rotated.json, *[(await api.get(one)).json for one in (path, "/v1/audit", "/v1/endpoints")]]
    assert not any(secret in str(shown) for secret in (OWN, OWN_NEXT))


async def test_an_own_private_key_keeps_its_public_key(api: Api) -> None:
    made = await api.endpoint("https://shop.example/", secret=OWN_KEY, signing="v1a")
    again = await api.endpoint("https://shop.example/")
    path = f"/v1/endpoints/{again['endpoint_id']}/rotate-secret"
    rotated = (await api.post(path, {"secret": OWN_KEY, "signing": "v1a"})).json
    assert made["secret"] == made["public_key"] == rotated["secret"] != ""


@pytest.mark.parametrize(
    "secret",
    ["", "secret", OWN.removeprefix("whsec_"), "whsec_!", "whsec_c2hvcnQ=", OWN_KEY, "whsec_" + "A" * 44, OWN + "\n"],
)
async def test_an_own_secret_of_the_wrong_form_or_that_can_be_guessed_is_refused_and_not_repeated(
    api: Api, secret: str
) -> None:
    made = await api.endpoint("https://shop.example/")
    body = {"name": "shop", "url": "https://shop.example/", "secret": secret}
    rotated = await api.post(f"/v1/endpoints/{made['endpoint_id']}/rotate-secret", {"secret": secret})
    for answer in (await api.post("/v1/endpoints", body), rotated):
        assert (answer.status, answer.json["errors"][0]["field"]) == (422, "secret")
        assert len(secret) < 10 or secret.strip() not in answer.body.decode()
