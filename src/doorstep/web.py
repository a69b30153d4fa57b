"""Your own HTTP routes: in the server of Doorstep, or Doorstep's routes in your own server.

In the server of Doorstep (`doorstep serve --app`), your routes use its API keys:

    from fastapi import APIRouter
    from doorstep.web import Caller, allowed

    routes = APIRouter(prefix="/orders")

    @routes.get("/{order}")
    async def order(order: str, caller: Annotated[Caller, allowed("look")]) -> dict[str, str]: ...

    doorstep.server.include_router(routes)

In your own server, your application controls access:

    from doorstep.web import router

    application.include_router(router(protocols), prefix="/protocols", dependencies=[Depends(signed_in)])
"""

from doorstep.api.codec import answer
from doorstep.api.pipelines import Actor, router
from doorstep.api.program import Caller, allowed, field_names, iso, json_body

__all__ = ["Actor", "Caller", "allowed", "answer", "field_names", "iso", "json_body", "router"]
