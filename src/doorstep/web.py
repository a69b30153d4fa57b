"""Parts of Doorstep's HTTP API that a web application can mount among its own routes.

    from doorstep.web import router

    application.include_router(router(protocols), prefix="/protocols", dependencies=[Depends(signed_in)])

The application controls access to these routes.
"""

from doorstep.api.pipelines import Actor, router

__all__ = ["Actor", "router"]
