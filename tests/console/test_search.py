"""The search box: an id leads to its page, any other text to what has it; the page says what was searched."""

from __future__ import annotations

from urllib.parse import quote

from tests.console.visiting import Console, Shown
from tests.support.scene import Scene

FIELDS = "/console/settings/search"


async def search(console: Console, text: object, more: str = "") -> Shown:
    return await console.get(f"/console/search?q={quote(str(text))}{more}")


async def test_a_whole_or_short_id_of_anything_leads_to_its_page(scene: Scene, console: Console) -> None:
    endpoint = await scene.endpoint()
    receipt = await scene.send()
    (delivery,) = await scene.deliveries(receipt)
    event = f"/console/events/{receipt.event_id}"
    places = {
        receipt.event_id: event,
        delivery.delivery_id: f"{event}#delivery-{delivery.delivery_id}",
        endpoint.endpoint_id: f"/console/endpoints/{endpoint.endpoint_id}",
    }
    for item_id, place in places.items():
        for text in (f" {item_id} ", str(item_id)[-8:], str(item_id)[-8:].upper()):
            assert (await search(console, text)).path == place, text
    listed = await console.get("/console/events")
    assert str(receipt.event_id) in listed.source
    nothing = await search(console, "0000abcd")
    assert (nothing.status, "Nothing was found for “0000abcd”." in nothing.text) == (200, True)


async def test_a_text_is_searched_in_keys_types_and_names(scene: Scene, console: Console) -> None:
    await scene.endpoint(name="Shop & Co")
    sent = await scene.send("order.paid", ordering_key="line", idempotency_key="once", correlation_id="request")
    for text, by in {"line": "Ordering key", "once": "Idempotency key", "request": "Correlation id"}.items():
        shown = await search(console, text)
        assert by in shown.text and str(sent.event_id) in shown.source
        assert "Searched as an id, a correlation id, an idempotency key" in shown.text
    assert str(sent.event_id) in (await search(console, "order.*")).source
    assert ">Shop &amp; Co</a>" in (await search(console, "shop &")).source
    assert "Nothing was found" in (await search(console, "<script>")).text


async def test_a_field_is_searched_and_the_page_says_how_far(scene: Scene, console: Console) -> None:
    sent = await scene.send("order.paid", {"order": {"id": 42}}, metadata={"customer": 7})
    for text in ("order.id=42", "payload.order.id = 42", "metadata.customer=7"):
        shown = await search(console, text)
        assert str(sent.event_id) in shown.source, text
        assert "Read 1 events, back to the oldest." in shown.text
    wrong = await search(console, "order..id=42")
    assert (wrong.status, "at most 8 keys" in wrong.text) == (422, True)


async def test_admins_change_the_searchable_fields_and_others_see_them(
    scene: Scene, console: Console, viewer: Console
) -> None:
    await console.get(FIELDS)
    saved = await console.post(FIELDS, search_fields="payload.order.id\r\nmetadata.customer\r\n")
    assert (saved.said, "payload.order.id\nmetadata.customer" in saved.source) == (
        "The searchable fields were saved.",
        True,
    )
    seen = await viewer.get(FIELDS)
    assert "metadata.customer" in seen.source and ">Save</button>" not in seen.source
    assert (await viewer.post(FIELDS, search_fields="")).status == 403
    wrong = await console.post(FIELDS, search_fields="order.id")
    assert wrong.status == 422 and "is payload.&lt;path&gt;" in wrong.source and "order.id</textarea>" in wrong.source
