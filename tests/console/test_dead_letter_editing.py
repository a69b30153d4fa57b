"""R7.4: edit and retry over HTTP: the edited payload is sent, unless it is invalid or someone else was faster."""

from __future__ import annotations

import html
from typing import NoReturn

import pytest

from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.formatting import pretty
from doorstep.console.pages import failed_deliveries
from doorstep.model.action import ActionKind
from doorstep.model.delivery import DeliveryState
from tests.console.dying import LETTERS, die, state_of
from tests.console.visiting import Console, Shown
from tests.support.scene import Scene


async def sent(console: Console, path: str, **fields: object) -> Shown:
    """Open the form, then submit it with these fields."""
    form = await console.get(path)
    return await console.post(path, {"made_of": form.field("made_of")} | fields)


async def test_a_payload_is_edited_and_goes_out_so(scene: Scene, console: Console) -> None:
    (letter,) = await die(scene)
    path = f"{LETTERS}/{letter.delivery_id}/edit"
    asked = await console.get(f"{path}?back={LETTERS}")
    assert '"price": 1.10' in asked.text, "a number is shown as it was sent"
    scene.receiver.says(200)
    edited = '{\r\n  "order": 7,\r\n  "price": 2.50\r\n}'
    shown = await sent(console, path, payload=edited, reason="wrong price", back=LETTERS)
    assert shown.said == "Retrying…"
    scene.leap(6)
    await scene.until_state(letter, DeliveryState.DELIVERED)
    assert scene.receiver.requests[-1].body == b'{"order":7,"price":2.50}'
    assert (await scene.delivery(letter)).edited


async def test_a_payload_that_was_not_changed_goes_out_byte_for_byte(scene: Scene, console: Console) -> None:
    (letter,) = await die(scene, payload=b'{ "order":7 ,\n"price":1.10 }')
    path = f"{LETTERS}/{letter.delivery_id}/edit"
    scene.receiver.says(200)
    shown = await sent(console, path, payload='{\r\n  "order": 7,\r\n  "price": 1.10\r\n}', back=LETTERS)
    assert shown.said == "Retrying…"
    scene.leap(6)
    await scene.until_state(letter, DeliveryState.DELIVERED)
    assert scene.receiver.requests[-1].body == b'{ "order":7 ,\n"price":1.10 }'


async def test_a_payload_that_is_no_json_is_told_and_kept(
    scene: Scene, console: Console, subtests: pytest.Subtests
) -> None:
    for typed in ('{"order": ', "<b>hm</b>", '{"a": 1} x'):
        with subtests.test(typed=typed):
            (letter,) = await die(scene)
            path = f"{LETTERS}/{letter.delivery_id}/edit"
            shown = await sent(console, path, payload=typed, reason="my reason", back=LETTERS)
            assert shown.status == 422
            assert "must be JSON" in (shown.said or "")
            assert html.unescape(shown.source.partition("<textarea")[2].partition(">\n")[2]).startswith(
                typed + "</textarea>"
            )
            assert 'value="my reason"' in shown.source
            assert await state_of(scene, letter) is DeliveryState.DEAD


async def test_an_empty_payload_is_told(scene: Scene, console: Console) -> None:
    (letter,) = await die(scene)
    path = f"{LETTERS}/{letter.delivery_id}/edit"
    assert (await sent(console, path, payload="  ")).status == 422


async def test_the_difference_to_what_was_sent_is_shown_and_nothing_done(scene: Scene, console: Console) -> None:
    (letter,) = await die(scene)
    path = f"{LETTERS}/{letter.delivery_id}/edit"
    shown = await sent(console, path, payload='{\n  "order": 8,\n  "price": 1.10\n}', compare="yes")
    assert '<span class="removed">-  &#34;order&#34;: 7,</span>' in shown.source
    assert '<span class="added">+  &#34;order&#34;: 8,</span>' in shown.source
    assert await state_of(scene, letter) is DeliveryState.DEAD


async def test_a_large_payload_that_was_laid_out_comes_back_and_is_not_lost(scene: Scene, console: Console) -> None:
    """Pretty-printed and form-encoded, the payload takes six times its bytes."""
    payload = b"[" + b"1," * 100_000 + b"1]"
    (letter,) = await die(scene, payload=payload)
    path = f"{LETTERS}/{letter.delivery_id}/edit"
    text = pretty(payload)
    assert text in (await console.get(path)).source
    typed = text.replace("\n", "\r\n").removesuffix("]") + ",]"
    shown = await sent(console, path, payload=typed, back=LETTERS)
    assert shown.status == 422
    assert "must be JSON" in (shown.said or "")
    assert typed.replace("\r\n", "\n") in shown.source


async def test_nothing_is_compared_unless_somebody_asks_for_it(
    scene: Scene, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(before: str, after: str) -> NoReturn:
        raise AssertionError("it takes up to a second")

    monkeypatch.setattr(failed_deliveries, "compared", compared)
    (letter,) = await die(scene)
    path = f"{LETTERS}/{letter.delivery_id}/edit"
    assert (await sent(console, path, payload="{", back=LETTERS)).status == 422
    assert (await sent(console, path, payload="{}", back=LETTERS)).path == LETTERS


async def test_what_is_not_dead_any_more_cannot_be_edited(scene: Scene, console: Console) -> None:
    (letter,) = await die(scene)
    path = f"{LETTERS}/{letter.delivery_id}/edit"
    await console.get(path)
    await scene.act(ActionKind.RESOLVE, letter)
    assert (await console.get(path)).status == 409
    shown = await console.post(path, payload="{}", back=LETTERS)
    assert "is resolved and cannot be retried with another payload" in (shown.said or "")


async def test_nobody_writes_over_what_another_has_edited_meanwhile_without_having_seen_it(
    scene: Scene, console: Console
) -> None:
    (letter,) = await die(scene)
    path = f"{LETTERS}/{letter.delivery_id}/edit"
    form = await console.get(path)
    await scene.doorstep.components.deliveries.act_on(
        ActionKind.RETRY, DEFAULT_ORG, letter.delivery_id, "another", payload=b'{"order":9}'
    )
    scene.leap(6)
    await scene.until_tried(letter, 2)
    await scene.until_state(letter, DeliveryState.DEAD)
    mine: dict[str, object] = {"payload": '{"order":8}', "reason": "wrong order", "back": LETTERS}
    shown = await console.post(path, mine | {"made_of": form.field("made_of")})
    assert shown.status == 409
    assert (shown.said or "").startswith("the payload was changed since you opened this page")
    assert '<span class="removed">-  &#34;order&#34;: 9</span>' in shown.source
    assert "{&#34;order&#34;:8}</textarea>" in shown.source
    assert 'value="wrong order"' in shown.source
    assert await state_of(scene, letter) is DeliveryState.DEAD
    again = await console.post(path, mine | {"made_of": shown.field("made_of")})
    assert again.said == "Retrying…"
