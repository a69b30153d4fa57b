"""Edit and retry: a dead letter goes out once more with another payload."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from difflib import unified_diff
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from doorstep.console.confirming import reason_of
from doorstep.console.drawing import pretty
from doorstep.console.page import ACT, Pages
from doorstep.console.visit import Visit
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.act import ActKind
from doorstep.model.delivery import DEAD_STATES, Delivery
from doorstep.policy.payload import check_payload

PAGES = Pages("/dead-letters")
_COMPARED_LINES_MAX = 2_000
"""Comparing takes a time that grows with the square of the lines: so many of them up to a second."""


class Line(NamedTuple):
    """A line of a comparison."""

    kind: str
    """`added`, `removed`, `place` or `same`."""
    text: str


class Difference(NamedTuple):
    """The lines that differ, and some around them."""

    lines: Sequence[Line] = ()
    too_long: bool = False
    """To be compared while somebody waits."""


_CHANGED = Conflict(
    "somebody has changed the payload since you began; below is how yours differs from it. Retry again to send yours"
)
_KINDS = {"+": "added", "-": "removed", "@": "place"}


@PAGES.get("/{delivery_id}/edit", ACT)
async def ask_edit(visit: Visit) -> Response:
    letter, sent = await _found(visit)
    return _form(visit, letter, sent, pretty(sent))


@PAGES.post("/{delivery_id}/edit")
async def edit(visit: Visit) -> Response:
    letter, sent = await _found(visit)
    before, typed = pretty(sent), (visit.form.raw("payload") or "").replace("\r\n", "\n")
    changed = None if visit.form.text("made_of") == digest(sent) else _CHANGED
    if changed or visit.form.flag("compare"):
        return _form(visit, letter, sent, typed, await asyncio.to_thread(compared, before, typed), changed)
    try:
        payload, reason = None if typed == before else checked(typed), reason_of(visit.form)
        await visit.doorstep.components.deliveries.act_on(
            ActKind.RETRY, visit.org_id, letter.delivery_id, visit.actor, reason, payload, only_in=DEAD_STATES
        )
    except InvalidInput as error:
        return _form(visit, letter, sent, typed, error=error)
    how = "as it was" if payload is None else "with the new payload"
    return visit.done(f"It is tried again in {visit.doorstep.components.tuning.revive_after_seconds:g} seconds, {how}.")


def _form(
    visit: Visit,
    letter: Delivery,
    sent: bytes,
    text: str,
    difference: Difference | None = None,
    error: InvalidInput | Conflict | None = None,
) -> Response:
    """It says what it was made of, so that nobody writes over what another has written meanwhile."""
    return visit.filled(
        "dead_letters_edit.html",
        visit.form,
        error,
        letter=letter,
        made_of=digest(sent),
        text=text,
        difference=difference,
    )


async def _found(visit: Visit) -> tuple[Delivery, bytes]:
    """The letter, and what would go out for it."""
    delivery_id = visit.id("delivery_id")
    letter = await visit.doorstep.components.store.delivery(visit.org_id, delivery_id)
    if letter.deleted or letter.state not in DEAD_STATES:
        state = "deleted" if letter.deleted else letter.state
        raise Conflict(f"delivery {delivery_id} is {state} and cannot be retried with another payload")
    return letter, await visit.doorstep.components.store.payload(visit.org_id, delivery_id)


# -- payloads as text: pure ----------------------------------------------------------------------------------


def digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def checked(text: str) -> bytes:
    """To be sent. That it is no JSON is told before its size: what is none keeps the blanks of the layout."""
    payload = compact(text)
    check_payload(payload, len(payload))
    return payload


def compact(text: str) -> bytes:
    """To be sent: without the blanks of the layout. What is no JSON stays as it is, to be refused with the reason."""
    try:
        return msgspec.json.format(text.encode(), indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return text.encode()


def compared(before: str, after: str) -> Difference:
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _COMPARED_LINES_MAX:
        return Difference(too_long=True)
    changes = list(unified_diff(old, new, n=2, lineterm=""))[2:]
    return Difference([Line(_KINDS.get(one[:1], "same"), one) for one in changes])
