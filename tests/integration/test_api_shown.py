"""How the HTTP API shows policies per event type, and held deliveries."""

from __future__ import annotations

from tests.integration.test_api import create_endpoint, new_type
from tests.support.builders import unused
from tests.support.program import Program
from tests.support.receiver import Receiver


def test_policies_by_event_type_are_taken_in_each_form_and_shown(served: Program, receiver: Receiver) -> None:
    given = {"order.paid": "quick", "order.*": [7], "user.*": {"delays": [1, 2.5], "jitter": 0}}
    shown = create_endpoint(served, receiver.url, new_type(), policy_by_event_type=given)["policy_by_event_type"]
    assert {pattern: policy["delays"] for pattern, policy in shown.items()} == {
        "order.paid": [5, 30, 300],
        "order.*": [7],
        "user.*": [1, 2.5],
    }


def test_a_policy_for_what_is_no_event_type_is_refused(served: Program, receiver: Receiver) -> None:
    body = {"name": unused("shop"), "url": receiver.url, "policy_by_event_type": {"*.paid": "quick"}}
    assert served.post("/v1/endpoints", body).status == 422


def test_a_delivery_that_is_held_says_why_until_it_is_not(served: Program, receiver: Receiver) -> None:
    event_type = new_type()
    endpoint_id = create_endpoint(served, receiver.url, event_type)["endpoint_id"]
    served.post(f"/v1/endpoints/{endpoint_id}/pause")
    event_id = served.post("/v1/events", {"event_type": event_type, "payload": 1}).json["event_id"]
    (delivery,) = served.get(f"/v1/events/{event_id}").json["deliveries"]
    assert delivery["held"] == {"reason": "The endpoint is paused.", "until": None}
    served.post(f"/v1/endpoints/{endpoint_id}/resume")
    assert served.get(f"/v1/deliveries/{delivery['delivery_id']}").json["held"] is None
