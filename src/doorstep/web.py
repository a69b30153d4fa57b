"""For web applications: parts of Doorstep's HTTP API to mount among their own routes.

    from doorstep.web import router

    application.include_router(router(protocols), prefix="/protocols", dependencies=[Depends(signed_in)])

Who may use them is for the application to say.
"""

from doorstep.api.pipelines import Actor, router

__all__ = ["Actor", "router"]
