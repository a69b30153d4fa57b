"""A new secret, shown this once: in the answer to the form that made it, never in a cookie or a URL."""

from __future__ import annotations

from starlette.responses import Response

from doorstep.clock import Instant
from doorstep.console.choices import place_of
from doorstep.console.visit import Visit
from doorstep.model.endpoint import Endpoint
from doorstep.model.org import ApiKey


def shown_once(visit: Visit, template: str, *, secret: str, place: str, **context: object) -> Response:
    """A page of the kind `shown_once.html`; `place` is where it leads. As none of our answers, no browser keeps it."""
    return visit.page(template, 200, secret=secret, place=place, **context)


def key_shown(visit: Visit, record: ApiKey, key: str, place: str, org_name: str | None = None) -> Response:
    """A new key, of this organization or as the first of a new one."""
    return shown_once(visit, "settings_key.html", record=record, secret=key, place=place, org_name=org_name)


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
