"""Whether the process lives, and whether it can be sent work. Open to everyone; tells nothing else."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from doorstep.api.routing import group
from doorstep.app import Doorstep
from doorstep.errors import StoreUnavailable

_STORE_SECONDS_MAX = 2.0


class Health(BaseModel):
    status: Literal["ok"]


def health_routes(doorstep: Doorstep) -> APIRouter:
    router = group("", "health", strict=False)

    @router.get("/healthz")
    async def live() -> Health:
        """The process answers. Says nothing about its store: restarting would not help that."""
        return Health(status="ok")

    @router.get("/readyz")
    async def ready() -> Health:
        """The store answers too; 503 otherwise."""
        try:
            await asyncio.wait_for(doorstep.components.store.time(), _STORE_SECONDS_MAX)
        except TimeoutError:
            raise StoreUnavailable("the store does not answer") from None
        return Health(status="ok")

    for path, route in (("/healthz", live), ("/readyz", ready)):  # monitors ask with HEAD too
        router.add_api_route(path, route, methods=["HEAD"], include_in_schema=False)
    return router
