"""A question about one thing: what is done to it, what that means, and why. The reason is kept in the audit log."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from starlette.responses import Response

from doorstep.console.fields import Fields
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


def asked_for(visit: Visit, title: str, question: Confirmation) -> Response:
    return visit.page("confirmation.html", title=title, question=question)


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
