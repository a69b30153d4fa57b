"""A question about one thing: what is done to it, what that means, and why. The reason is kept in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.fields import Fields
from doorstep.console.page import ACT, Pages
from doorstep.console.request import PageRequest
from doorstep.console.selection import place_of
from doorstep.errors import InvalidInput
from doorstep.model.action import REASON_CHARACTERS_MAX
from doorstep.model.endpoint import Endpoint
from doorstep.model.org import ApiKey
from doorstep.model.record import uuid7


class Confirmation(NamedTuple):
    act: str
    """The word on its button."""
    means: str
    final: bool = True
    """It cannot be undone, so that the reason must be given."""


Ask = Callable[[PageRequest], Awaitable[tuple[str, Confirmation]]]
"""The title, with what it is about as that stands now, and the rest of the question."""
Act = Callable[[PageRequest, str], Awaitable[Response]]
"""What is done, for this reason."""


def confirmed(pages: Pages, path: str, ask: Ask) -> Callable[[Act], Act]:
    """Declare an act that is asked about first: the page that asks, and the form that answers. Where something is wrong
    with the answer, it is asked once more."""

    def declare(act: Act) -> Act:
        @pages.get(path, ACT)
        async def asked(visit: PageRequest) -> Response:
            return _asked(visit, *await ask(visit))

        @pages.post(path)
        async def answered(visit: PageRequest) -> Response:
            title, question = await ask(visit)
            try:
                return await act(visit, reason_of(visit.form, required=question.final))
            except InvalidInput as error:
                return _asked(visit, title, question, error)

        return act

    return declare


def _asked(visit: PageRequest, title: str, question: Confirmation, error: InvalidInput | None = None) -> Response:
    return visit.filled("confirmation.html", visit.form, error, title=title, question=question)


def one_time_id(visit: PageRequest) -> UUID:
    """Of a form, in its field `once`: whoever sends the form twice has it done once."""
    return visit.form.id("once") or uuid7(visit.now)


def reason_of(form: Fields, *, required: bool = False) -> str:
    reason = form.text("reason") or ""
    if required and not reason:
        raise InvalidInput("reason", "must be given for this; it is kept in the audit log")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput("reason", f"must be at most {REASON_CHARACTERS_MAX} characters, got {len(reason)}")
    return reason


def shown_once(visit: PageRequest, template: str, *, secret: str, place: str, **context: object) -> Response:
    """A page of the kind `shown_once.html`; `place` is where it leads. As none of our answers, no browser keeps it."""
    return visit.page(template, 200, secret=secret, place=place, **context)


def key_shown(visit: PageRequest, record: ApiKey, key: str, place: str, org_name: str | None = None) -> Response:
    """A new key, of this organization or as the first of a new one."""
    return shown_once(visit, "settings_key.html", record=record, secret=key, place=place, org_name=org_name)


def secret_shown(
    visit: PageRequest, endpoint: Endpoint, verifier: str, old_expires_at: Instant | None = None
) -> Response:
    """What the receiver of an endpoint verifies with."""
    signing = endpoint.signing_secret
    return shown_once(
        visit,
        "endpoint_secret.html",
        secret=verifier,
        place=place_of(endpoint),
        endpoint=endpoint,
        shared=signing is None or signing.scheme == "v1",
        rotated=endpoint.version > 1,
        old_expires_at=old_expires_at,
    )
