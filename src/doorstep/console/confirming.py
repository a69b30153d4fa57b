"""A question about one thing: what is done to it, what that means, and why. The reason is kept in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from starlette.responses import Response

from doorstep.console.fields import Fields
from doorstep.console.page import ACT, Pages
from doorstep.console.visit import Visit
from doorstep.errors import InvalidInput
from doorstep.model.act import REASON_CHARACTERS_MAX
from doorstep.model.ids import uuid7


class Confirmation(NamedTuple):
    act: str
    """The word on its button."""
    means: str
    final: bool = True
    """It cannot be undone, so that the reason must be given."""


Ask = Callable[[Visit], Awaitable[tuple[str, Confirmation]]]
"""The title, with what it is about as that stands now, and the rest of the question."""
Act = Callable[[Visit, str], Awaitable[Response]]
"""What is done, for this reason."""


def confirmed(pages: Pages, path: str, ask: Ask) -> Callable[[Act], Act]:
    """Declare an act that is asked about first: the page that asks, and the form that answers. Where something is wrong
    with the answer, it is asked once more."""

    def declare(act: Act) -> Act:
        @pages.get(path, ACT)
        async def asked(visit: Visit) -> Response:
            return _asked(visit, *await ask(visit))

        @pages.post(path)
        async def answered(visit: Visit) -> Response:
            title, question = await ask(visit)
            try:
                return await act(visit, reason_of(visit.form, required=question.final))
            except InvalidInput as error:
                return _asked(visit, title, question, error)

        return act

    return declare


def _asked(visit: Visit, title: str, question: Confirmation, error: InvalidInput | None = None) -> Response:
    return visit.filled("confirmation.html", visit.form, error, title=title, question=question)


def one_time_id(visit: Visit) -> UUID:
    """Of a form, in its field `once`: whoever sends the form twice has it done once."""
    return visit.form.id("once") or uuid7(visit.now)


def reason_of(form: Fields, *, required: bool = False) -> str:
    reason = form.text("reason") or ""
    if required and not reason:
        raise InvalidInput("reason", "must be given for this; it is kept in the audit log")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput("reason", f"must be at most {REASON_CHARACTERS_MAX} characters, got {len(reason)}")
    return reason
