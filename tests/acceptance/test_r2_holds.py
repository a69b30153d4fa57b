"""R2.6 over HTTP: when a delivery will really be tried again, what holds it, and what held it."""

from __future__ import annotations

from typing import Any

from doorstep.clock import from_iso, seconds
from tests.support.api import Api
from tests.support.scene import Scene, until

_PAUSE_SECONDS = 60
_OPENS_AT_ONCE = {"failures_max": 1, "probe_seconds_min": _PAUSE_SECONDS, "open_seconds": _PAUSE_SECONDS}


async def _failed_once(scene: Scene, api: Api, **fields: Any) -> tuple[dict[str, Any], str]:
    """An endpoint, and an event whose only delivery has failed once and is due again after five seconds."""
    scene.receiver.says(503)
    endpoint = await api.endpoint(scene.receiver.url(), **{"policy": "standard"} | fields)
    event_id = await api.send()
    await api.until_delivery(event_id, attempts=1, state="pending")
    return endpoint, event_id


async def _next_retries(api: Api, event_id: str) -> set[str | None]:
    """`next_retry_at` in every answer that has it."""
    event = (await api.get(f"/v1/events/{event_id}")).json
    (delivery,) = event["deliveries"]
    found = [event, delivery, await api.status(event_id), (await api.get("/v1/events")).json["events"][0]]
    found.append((await api.get(f"/v1/deliveries/{delivery['delivery_id']}")).json)
    for path in ("/v1/deliveries", "/v1/retry-queue"):
        (listed,) = (await api.get(path)).json["deliveries"]
        found.append(listed)
    return {one["next_retry_at"] for one in found}


async def _holds(api: Api, event_id: str) -> list[dict[str, str | None]]:
    """`held` of the event and of its delivery in every answer that has it."""
    event = (await api.get(f"/v1/events/{event_id}")).json
    (delivery,) = event["deliveries"]
    (listed,) = (await api.get("/v1/deliveries")).json["deliveries"]
    (queued,) = (await api.get("/v1/retry-queue")).json["deliveries"]
    return [one["held"] for one in (event, delivery, listed, queued)]


async def _next_probe(api: Api, endpoint: dict[str, Any]) -> str:
    """The time of the next probe, once the circuit is open."""

    async def is_open() -> bool:
        return (await circuit())["state"] == "open"

    async def circuit() -> dict[str, Any]:
        return (await api.get(f"/v1/endpoints/{endpoint['endpoint_id']}/circuit")).json

    await until(is_open, "an open circuit")
    return str((await circuit())["until"])


async def test_while_a_circuit_is_open_the_next_retry_is_the_next_probe_everywhere(scene: Scene, api: Api) -> None:
    endpoint, event_id = await _failed_once(scene, api, circuit=_OPENS_AT_ONCE)
    probe_at = await _next_probe(api, endpoint)
    assert from_iso((await api.delivery_of(event_id))["due_at"]) < from_iso(probe_at)
    assert await _next_retries(api, event_id) == {probe_at}
    reason = f"The endpoint's circuit is open until {probe_at}, after 1 failure in a row."
    assert await _holds(api, event_id) == [{"reason": reason, "until": probe_at}] * 4
    scene.leap(_PAUSE_SECONDS - 2)
    await scene.nothing_more_arrives()
    scene.receiver.says(200)
    scene.leap(3)
    assert (await api.until_delivery(event_id, state="delivered"))["held"] is None


async def test_a_retry_that_is_later_than_the_next_probe_keeps_its_time(scene: Scene, api: Api) -> None:
    endpoint, event_id = await _failed_once(scene, api, policy=[3600], circuit=_OPENS_AT_ONCE)
    probe_at, due_at = await _next_probe(api, endpoint), (await api.delivery_of(event_id))["due_at"]
    assert from_iso(due_at) > from_iso(probe_at)
    assert await _next_retries(api, event_id) == {due_at}


async def test_what_is_held_without_an_end_has_no_next_retry_and_says_why(scene: Scene, api: Api) -> None:
    endpoint, event_id = await _failed_once(scene, api)
    (due_at,) = await _next_retries(api, event_id)
    assert due_at is not None and await _holds(api, event_id) == [None] * 4
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    await api.post(f"{path}/pause", {"reason": "moving house"})
    assert await _next_retries(api, event_id) == {None}
    assert await _holds(api, event_id) == [{"reason": "The endpoint is paused: moving house", "until": None}] * 4
    await api.post(f"{path}/resume")
    assert await _next_retries(api, event_id) == {due_at}


async def test_a_delivery_that_waits_for_an_operator_has_no_next_retry_and_says_why(scene: Scene, api: Api) -> None:
    _, event_id = await _failed_once(scene, api, policy="manual")
    assert await _next_retries(api, event_id) == {None}
    held = {"reason": "Its retry policy leaves it to an operator.", "until": None}
    assert await _holds(api, event_id) == [held] * 4


async def test_a_batch_says_what_holds_it_and_until_when(scene: Scene, api: Api) -> None:
    of_batches = {"batch": True, "event_types": ["order.paid"]}
    endpoint, batch_id = await _failed_once(scene, api, circuit=_OPENS_AT_ONCE, **of_batches)
    probe_at = await _next_probe(api, endpoint)
    batch = (await api.get(f"/v1/batches/{batch_id}")).json
    assert (batch["next_retry_at"], batch["held"]["until"]) == (probe_at, probe_at)
    await api.post(f"/v1/endpoints/{endpoint['endpoint_id']}/pause")
    batch = (await api.get(f"/v1/batches/{batch_id}")).json
    assert (batch["next_retry_at"], batch["held"]) == (None, {"reason": "The endpoint is paused.", "until": None})


async def test_past_holds_are_in_the_history_with_their_times_and_reasons(scene: Scene, api: Api) -> None:
    endpoint, event_id = await _failed_once(scene, api, circuit=_OPENS_AT_ONCE)
    await _next_probe(api, endpoint)
    path = f"/v1/endpoints/{endpoint['endpoint_id']}"
    scene.leap(30)
    await api.post(f"{path}/pause", {"reason": "moving house"})
    scene.leap(300)
    scene.receiver.says(200)
    resumed_at = scene.clock.now()
    await api.post(f"{path}/resume")
    delivery = await api.until_delivery(event_id, state="delivered")
    history = (await api.get(f"/v1/deliveries/{delivery['delivery_id']}/history")).json["history"]
    assert [one["new_state"] for one in history] == ["pending", "in_progress", "pending", "in_progress", "delivered"]
    assert [one["holds"] for one in history if one is not history[3]] == [[]] * 4
    holds = history[3]["holds"]
    assert {one["reason"] for one in holds} == {
        "The endpoint's circuit was open (1 failure in a row).",
        "The endpoint was paused (moving house).",
    }
    begun_at, ended_at = from_iso(holds[0]["since"]), from_iso(holds[-1]["until"])
    assert begun_at < resumed_at - seconds(320) and ended_at >= resumed_at
