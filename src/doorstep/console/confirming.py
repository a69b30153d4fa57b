"""A question about one thing: what is done to it, what that means, and why. The reason is kept in the audit log."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from doorstep.console.fields import Fields
from doorstep.console.visit import Visit
from doorstep.errors import InvalidInput
from doorstep.model.act import REASON_CHARACTERS_MAX


class Confirmation(NamedTuple):
    act: str
    """The word on its button."""
    means: str
    final: bool = True
    """It cannot be undone, so that the reason must be given."""


def asked_for(visit: Visit, title: str, question: Confirmation) -> Response:
    return visit.page("confirmation.html", title=title, question=question)


def reason_of(form: Fields, *, required: bool = False) -> str:
    reason = form.text("reason") or ""
    if required and not reason:
        raise InvalidInput("reason", "must be given for this; it is kept in the audit log")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput("reason", f"must be at most {REASON_CHARACTERS_MAX} characters, got {len(reason)}")
    return reason
