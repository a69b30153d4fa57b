"""The permission that a route needs, and the methods of each path.

Each route declares its permission, without which it cannot be added. routing.py enforces the permissions, the OpenAPI
document and docs/reference/api.md list them, and the tests check every route with every role.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from doorstep.api.problems import Problem, Refusal
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.org import NOT_FOR_USERS, ONLY_DEFAULT_ORG, ApiKey, Permission, permission_error


class Access(NamedTuple):
    """The permission that a route needs, and whether it can respond with a 409. `not_found` marks a route that can
    respond with a 404 although its path contains no id."""

    permission: Permission
    conflict: bool = False
    not_found: bool = False
    default_org: bool = False
    """Whether only keys of the default organization, which administers the others, may use the route."""
    own: bool = False
    """Whether keys with a user may use the route, because it shows and changes only what belongs to their user."""


def check(key: ApiKey, access: Access) -> None:
    """Raise a FORBIDDEN refusal if the key may not use the route."""
    if refusal := permission_error(key.role, access.permission):
        raise Refusal(Problem.FORBIDDEN, refusal)
    if key.user_id is not None and not access.own:
        raise Refusal(Problem.FORBIDDEN, NOT_FOR_USERS)
    if access.default_org and key.org_id != DEFAULT_ORG:
        raise Refusal(Problem.FORBIDDEN, ONLY_DEFAULT_ORG)


# -- methods -----------------------------------------------------------------------------------------------------

_ANY = "*"
_ID_PLACES = (3, 5)
"""The positions of ids in a path that is split at `/`, for example in `/v1/events/{event_id}/status` and
`/v1/pipelines/{pipeline}/entities/{entity_id}`."""


class PathMethods:
    """The methods of each path under /v1."""

    def __init__(self, lines: Iterable[str]) -> None:
        """`lines` are the routes as in the OpenAPI document, such as `GET /v1/events/{event_id}`."""
        self._methods: dict[str, tuple[str, ...]] = {}
        for method, path in sorted(line.split(" ") for line in lines):
            place = re.sub(r"\{\w+\}", _ANY, path)
            self._methods[place] = (*self._methods.get(place, ()), method)

    def of(self, path: str) -> tuple[str, ...]:
        """The methods that a path supports; empty for an unknown path."""
        if path in self._methods:
            return self._methods[path]
        parts = path.split("/")
        for place in _ID_PLACES:
            if not parts[place : place + 1] or not parts[place]:
                return ()
            parts[place] = _ANY
            if found := self._methods.get("/".join(parts)):
                return found
        return ()
