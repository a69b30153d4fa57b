"""API keys: who may do what. A new key is shown in the answer to the form that made it, and nowhere else."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.clock import Instant, seconds
from doorstep.console.confirming import reason_of
from doorstep.console.fields import Fields
from doorstep.console.filters import one_of
from doorstep.console.page import ADMINISTER, Pages
from doorstep.console.shown_once import key_shown
from doorstep.console.visit import Visit
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.org import Role
from doorstep.stores.revoking import named_key

PAGES = Pages("/settings/keys")
PLACE = "/console/settings/keys"
ROLES = {
    Role.OPERATOR: "operator: sees everything, retries and repairs",
    Role.VIEWER: "viewer: sees everything",
    Role.PUBLISHER: "publisher: sends events and reads their status",
    Role.ADMIN: "admin: also makes and revokes keys",
}
EXPIRIES = {"never": None, "30d": 30 * 86_400, "90d": 90 * 86_400, "365d": 365 * 86_400}
_EXPIRY_NAMES = {"never": "never", "30d": "in 30 days", "90d": "in 90 days", "365d": "in a year"}
_ENDED_MAX = 50
"""Of those that open nothing any more, the newest; the audit log has them all."""


@PAGES.get(permission=ADMINISTER)
async def show(visit: Visit) -> Response:
    """Those that are good first, the newest of each first."""
    keys = (await visit.doorstep.components.keys.keys(visit.org_id))[::-1]
    good = [key for key in keys if key.is_valid(visit.now)]
    ended = [key for key in keys if not key.is_valid(visit.now)]
    return visit.page("settings_keys.html", good=good, ended=ended[:_ENDED_MAX], more=len(ended) - _ENDED_MAX)


@PAGES.get("/new", ADMINISTER)
async def ask_new(visit: Visit) -> Response:
    return _form(visit, Fields([("role", Role.OPERATOR), ("expiry", "never")]))


@PAGES.post("/new", ADMINISTER)
async def create(visit: Visit) -> Response:
    form = visit.form
    try:
        role, expires_at = form.choice("role", Role), _expires_at(visit)
        if role is None:
            raise InvalidInput("role", f"must be one of {', '.join(Role)}")
        name = form.text("name") or ""
        record, key = await visit.doorstep.components.keys.create(visit.org_id, name, role, visit.actor, expires_at)
    except (InvalidInput, Conflict) as error:
        return _form(visit, form, error)
    return key_shown(visit, record, key, PLACE)


@PAGES.get("/{key_id}/revoke", ADMINISTER)
async def ask_revoke(visit: Visit) -> Response:
    return await _revoking(visit)


@PAGES.post("/{key_id}/revoke", ADMINISTER)
async def revoke(visit: Visit) -> Response:
    try:
        reason = reason_of(visit.form, required=True)
        key = await visit.doorstep.components.keys.revoke(visit.org_id, visit.id("key_id"), visit.actor, reason)
    except InvalidInput as error:
        return await _revoking(visit, error)
    return visit.done(f"{key.name} ({key.prefix}…) opens nothing any more.", PLACE)


async def _revoking(visit: Visit, error: InvalidInput | None = None) -> Response:
    key = named_key(visit.id("key_id"), await visit.doorstep.components.keys.keys(visit.org_id))
    return visit.filled("settings_key_revoke.html", visit.form, error, key=key, place=PLACE)


def _expires_at(visit: Visit) -> Instant | None:
    """The end that was named, else so long from now, else none."""
    named = visit.form.moment("expires_at")
    if named is not None:
        return named
    span = one_of("expiry", visit.form.text("expiry") or "never", EXPIRIES)
    return None if span is None else visit.now + seconds(span)


def _form(visit: Visit, entered: Fields, error: InvalidInput | Conflict | None = None) -> Response:
    return visit.filled("settings_key_new.html", entered, error, roles=ROLES, expiries=_EXPIRY_NAMES, place=PLACE)
