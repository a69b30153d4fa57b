"""Links that sign a browser in to the console as the key that asked for one."""

from __future__ import annotations

from fastapi import APIRouter

from doorstep.api.auth import Caller
from doorstep.api.routing import group
from doorstep.api.schemas import Shape, Timestamp
from doorstep.app import Doorstep
from doorstep.clock import to_iso
from doorstep.console.links import LASTS, SignInLinks
from doorstep.errors import Conflict


class SignInLinkOut(Shape):
    """A path of this very server, for one use."""

    path: str
    expires_at: Timestamp


def sign_in_link_routes(doorstep: Doorstep, links: SignInLinks) -> APIRouter:
    router = group("/v1", "console")

    @router.post("/sign-in-links", status_code=201)
    async def create_sign_in_link(caller: Caller) -> SignInLinkOut:
        """Create a link that signs a browser in to the console as your key, once, within 30 minutes. Only the process that made it knows it."""
        if not doorstep.settings.console:
            raise Conflict("the console is turned off here; set DOORSTEP_CONSOLE=true to have it")
        return SignInLinkOut(path=links.new(caller), expires_at=to_iso(doorstep.clock.now() + LASTS))

    return router
