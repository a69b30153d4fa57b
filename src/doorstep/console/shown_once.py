"""A new secret, shown this once: in the answer to the form that made it, never in a cookie or a URL."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.choices import place_of
from doorstep.console.visit import Visit
from doorstep.model.endpoint import Endpoint


def shown_once(visit: Visit, template: str, *, secret: str, place: str, **context: object) -> Response:
    """A page of the kind `shown_once.html`, which no browser keeps; `place` is where it leads."""
    response = visit.page(template, 200, secret=secret, place=place, **context)
    response.headers["Cache-Control"] = "no-store"
    return response


def secret_shown(visit: Visit, endpoint: Endpoint, verifier: str, old_expires_at: Instant | None = None) -> Response:
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
