"""Endpoints by what people call them: their id, or their name."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from doorstep.cli.connecting import connect
from doorstep.config import Settings
from doorstep.errors import ConfigError, DoorstepError, NotFound

if TYPE_CHECKING:
    from doorstep.client import Client
    from doorstep.schemas.endpoints import Endpoint


_PAGE_MAX = 200
_COMPLETION_SECONDS = 1.0


def endpoint_named(client: Client, words: str) -> Endpoint:
    """The endpoint with this id, or the one and only with this name."""
    if _is_id(words):
        return client.endpoints.read(words)
    found = [endpoint for endpoint in client.endpoints.each(limit=_PAGE_MAX) if endpoint.name == words]
    if not found:
        raise NotFound(f"there is no endpoint named {words!r}; `doorstep endpoints list` shows them")
    if len(found) > 1:
        ids = ", ".join(str(endpoint.endpoint_id) for endpoint in found)
        raise ConfigError(f"{len(found)} endpoints are named {words!r}; give the id instead, one of {ids}")
    return found[0]


def endpoint_id_of(client: Client, words: str | None) -> str | None:
    """The id for a filter; an id is taken as it is, so that deleted endpoints can be asked about too."""
    if words is None or _is_id(words):
        return words
    return str(endpoint_named(client, words).endpoint_id)


def complete_endpoint(incomplete: str) -> list[str]:
    """For the shell: the names that begin so. Silent where there is no server: completion must never get in the way."""
    try:
        with connect(Settings(), tries=1, timeout_seconds=_COMPLETION_SECONDS) as client:
            return [one.name for one in client.endpoints.page(limit=_PAGE_MAX) if one.name.startswith(incomplete)]
    except DoorstepError:
        return []


def _is_id(words: str) -> bool:
    try:
        UUID(words)
    except ValueError:
        return False
    return True
