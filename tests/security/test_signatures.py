"""Other people's code verifies the signatures of real deliveries: `standardwebhooks` and `cryptography`."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from tests.support.builders import unused
from tests.support.program import Program, wait_for
from tests.support.receiver import Received, Receiver

PAYLOAD = {"order": 1017, "name": "Žluťoučký 😀", "total": 49.9}


def create(served: Program, receiver: Receiver, **fields: Any) -> dict[str, Any]:
    endpoint = {"name": unused("signed"), "url": receiver.url, "event_types": ["none"], "policy": [0, 0]} | fields
    answer = served.post("/v1/endpoints", endpoint)
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.json
    return found


def send(served: Program, endpoint: dict[str, Any]) -> str:
    event = {"event_type": "signed", "payload": PAYLOAD, "endpoint_ids": [endpoint["endpoint_id"]]}
    return str(served.post("/v1/events", event).json["event_id"])


def arrivals(receiver: Receiver, event_id: str, count: int = 1) -> list[Received]:
    def arrived() -> list[Received] | None:
        found = [one for one in list(receiver.received) if one.headers["webhook-id"] == event_id]
        return found if len(found) >= count else None

    return wait_for(arrived)


def verified(secret: str, one: Received) -> Any:
    """The payload as returned by the other library, which raises if the signature is not valid."""
    return Webhook(secret).verify(one.body, one.headers)


def test_a_delivery_is_verified_by_standardwebhooks(served: Program, receiver: Receiver) -> None:
    endpoint = create(served, receiver)
    (one,) = arrivals(receiver, send(served, endpoint))
    assert verified(endpoint["secret"], one) == PAYLOAD


def test_the_control_another_secret_or_another_byte_is_not_verified(served: Program, receiver: Receiver) -> None:
    endpoint, other = create(served, receiver), create(served, receiver)
    (one,) = arrivals(receiver, send(served, endpoint))
    later = {"webhook-timestamp": str(int(one.headers["webhook-timestamp"]) + 1)}
    for secret, changed in (
        (other["secret"], one),
        (endpoint["secret"], one._replace(body=one.body.replace(b"1017", b"1018"))),
        (endpoint["secret"], one._replace(headers=one.headers | {"webhook-id": "another"})),
        (endpoint["secret"], one._replace(headers=one.headers | later)),
    ):
        with pytest.raises(WebhookVerificationError):
            verified(secret, changed)


def test_each_retry_is_signed_anew_under_the_same_id(served: Program, receiver: Receiver) -> None:
    receiver.status = 503
    endpoint = create(served, receiver)
    first, second, third = arrivals(receiver, send(served, endpoint), count=3)
    for one in (first, second, third):
        assert verified(endpoint["secret"], one) == PAYLOAD
    assert first.body == second.body == third.body


def test_an_envelope_a_test_and_a_replay_are_signed_too(served: Program, receiver: Receiver) -> None:
    endpoint = create(served, receiver, envelope=True)
    event_id = send(served, endpoint)
    (one,) = arrivals(receiver, event_id)
    assert verified(endpoint["secret"], one)["data"] == PAYLOAD
    replay = {"endpoint_id": endpoint["endpoint_id"]}
    replayed = served.post(f"/v1/events/{event_id}/replay", replay).json["event_id"]
    tested = served.post(f"/v1/endpoints/{endpoint['endpoint_id']}/test", {"payload": [1]}).json["event_id"]
    assert verified(endpoint["secret"], arrivals(receiver, replayed)[0])["data"] == PAYLOAD
    assert verified(endpoint["secret"], arrivals(receiver, tested)[0])["data"] == [1]


def test_an_edited_payload_is_what_is_signed(served: Program, receiver: Receiver) -> None:
    receiver.status = 400
    endpoint = create(served, receiver)
    event_id = send(served, endpoint)
    wait_for(lambda: served.get(f"/v1/events/{event_id}/status").json["status"] == "failed")
    (delivery,) = served.get(f"/v1/events/{event_id}").json["deliveries"]
    receiver.status = 200
    edited = b'{"payload": { "total" : 50.0 }}'
    assert served.post(f"/v1/dead-letters/{delivery['delivery_id']}/retry", edited).status == 202
    one = arrivals(receiver, event_id, count=2)[1]
    assert one.body == b'{ "total" : 50.0 }'
    assert verified(endpoint["secret"], one) == {"total": 50.0}


def rotate(served: Program, endpoint: dict[str, Any], **fields: Any) -> str:
    answer = served.post(f"/v1/endpoints/{endpoint['endpoint_id']}/rotate-secret", fields)
    assert answer.status == 200, answer.body
    return str(answer.json["secret"])


def test_during_a_rotation_both_secrets_verify_and_afterwards_only_the_new_one(
    served: Program, receiver: Receiver
) -> None:
    endpoint = create(served, receiver)
    second = rotate(served, endpoint, overlap_seconds=3600)
    (one,) = arrivals(receiver, send(served, endpoint))
    assert verified(endpoint["secret"], one) == verified(second, one) == PAYLOAD
    third = rotate(served, endpoint, overlap_seconds=0)
    (one,) = arrivals(receiver, send(served, endpoint))
    assert verified(third, one) == PAYLOAD
    with pytest.raises(WebhookVerificationError):
        verified(second, one)


# -- v1a -------------------------------------------------------------------------------------------------------


def test_v1a_is_verified_with_the_public_key_alone(served: Program, receiver: Receiver) -> None:
    endpoint = create(served, receiver, signing="v1a")
    assert endpoint["secret"].startswith("whpk_")
    (one,) = arrivals(receiver, send(served, endpoint))
    verify_v1a(endpoint["secret"], one)
    with pytest.raises(InvalidSignature):
        verify_v1a(endpoint["secret"], one._replace(body=one.body + b" "))
    shown = served.get(f"/v1/endpoints/{endpoint['endpoint_id']}").json
    assert shown["public_key"] == endpoint["secret"]


def test_while_the_kind_of_signature_changes_both_are_there(served: Program, receiver: Receiver) -> None:
    endpoint = create(served, receiver)
    public_key = rotate(served, endpoint, signing="v1a", overlap_seconds=3600)
    (one,) = arrivals(receiver, send(served, endpoint))
    assert verified(endpoint["secret"], one) == PAYLOAD
    verify_v1a(public_key, one)


def verify_v1a(public_key: str, one: Received) -> None:
    """Verify a signature as the specification describes, without any Doorstep code."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key.removeprefix("whpk_")))
    given = [part for part in one.headers["webhook-signature"].split(" ") if part.startswith("v1a,")]
    assert len(given) == 1, one.headers
    signed = f"{one.headers['webhook-id']}.{one.headers['webhook-timestamp']}.".encode() + one.body
    key.verify(base64.b64decode(given[0].removeprefix("v1a,")), signed)
    assert json.loads(one.body) == PAYLOAD
