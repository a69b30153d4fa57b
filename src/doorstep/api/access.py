"""Every route with the permission that it needs, and the methods of each path.

`ROUTES` is the only place that defines permissions. routing.py enforces them, the OpenAPI document and
docs/reference/api.md list them, and the tests check every route with every role. A route that is not in `ROUTES` cannot
be added.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from doorstep.api.problems import Problem, Refusal
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.org import ONLY_DEFAULT_ORG, ApiKey, Permission, permission_error

_P = Permission


class Access(NamedTuple):
    """The permission that a route needs, and whether it can respond with a 409. `not_found` marks a route that can
    respond with a 404 although its path contains no id."""

    permission: Permission
    conflict: bool = False
    not_found: bool = False
    default_org: bool = False
    """Whether only keys of the default organization, which administers the others, may use the route."""


ROUTES: dict[str, Access] = {
    "POST /v1/events": Access(_P.SEND, conflict=True),
    "POST /v1/events/batch": Access(_P.SEND),
    "GET /v1/events": Access(_P.LOOK),
    "GET /v1/events/{event_id}": Access(_P.LOOK),
    "GET /v1/events/{event_id}/status": Access(_P.STATUS),
    "POST /v1/events/{event_id}/ack": Access(_P.ACT, conflict=True),
    "POST /v1/events/{event_id}/retry": Access(_P.ACT, conflict=True),
    "POST /v1/events/{event_id}/cancel": Access(_P.ACT, conflict=True),
    "POST /v1/events/{event_id}/replay": Access(_P.ACT, conflict=True),
    "DELETE /v1/events/{event_id}": Access(_P.ACT, conflict=True),
    "GET /v1/inbox": Access(_P.LOOK),
    "POST /v1/endpoints": Access(_P.ACT, conflict=True),
    "GET /v1/endpoints": Access(_P.LOOK),
    "GET /v1/endpoints/{endpoint_id}": Access(_P.LOOK),
    "PATCH /v1/endpoints/{endpoint_id}": Access(_P.ACT, conflict=True),
    "DELETE /v1/endpoints/{endpoint_id}": Access(_P.ACT, conflict=True),
    "POST /v1/endpoints/{endpoint_id}/pause": Access(_P.ACT, conflict=True),
    "POST /v1/endpoints/{endpoint_id}/resume": Access(_P.ACT, conflict=True),
    "POST /v1/endpoints/{endpoint_id}/test": Access(_P.ACT, conflict=True),
    "POST /v1/endpoints/{endpoint_id}/rotate-secret": Access(_P.ACT, conflict=True),
    "POST /v1/endpoints/{endpoint_id}/replay": Access(_P.ACT, conflict=True),
    "GET /v1/endpoints/{endpoint_id}/circuit": Access(_P.LOOK),
    "GET /v1/deliveries/{delivery_id}": Access(_P.LOOK),
    "GET /v1/deliveries/{delivery_id}/payload": Access(_P.LOOK),
    "GET /v1/deliveries/{delivery_id}/attempts": Access(_P.LOOK),
    "GET /v1/deliveries/{delivery_id}/history": Access(_P.LOOK),
    "GET /v1/retry-queue": Access(_P.LOOK),
    "POST /v1/retry-queue/{delivery_id}/retry": Access(_P.ACT, conflict=True),
    "POST /v1/retry-queue/{delivery_id}/skip": Access(_P.ACT, conflict=True),
    "POST /v1/retry-queue/bulk-retry": Access(_P.ACT),
    "POST /v1/retry-queue/bulk-skip": Access(_P.ACT),
    "GET /v1/dead-letters": Access(_P.LOOK),
    "GET /v1/dead-letters/groups": Access(_P.LOOK),
    "POST /v1/dead-letters/{delivery_id}/retry": Access(_P.ACT, conflict=True),
    "POST /v1/dead-letters/{delivery_id}/resolve": Access(_P.ACT, conflict=True),
    "DELETE /v1/dead-letters/{delivery_id}": Access(_P.ACT, conflict=True),
    "POST /v1/dead-letters/bulk-retry": Access(_P.ACT),
    "POST /v1/dead-letters/bulk-resolve": Access(_P.ACT),
    "POST /v1/dead-letters/bulk-delete": Access(_P.ACT),
    "GET /v1/bulk": Access(_P.LOOK),
    "GET /v1/bulk/{bulk_id}": Access(_P.LOOK),
    "GET /v1/bulk/{bulk_id}/failures": Access(_P.LOOK),
    "POST /v1/bulk/{bulk_id}/pause": Access(_P.ACT, conflict=True),
    "POST /v1/bulk/{bulk_id}/resume": Access(_P.ACT, conflict=True),
    "POST /v1/bulk/{bulk_id}/cancel": Access(_P.ACT, conflict=True),
    "GET /v1/batches": Access(_P.LOOK),
    "GET /v1/batches/{batch_id}": Access(_P.LOOK),
    "GET /v1/batches/{batch_id}/attempts": Access(_P.LOOK),
    "POST /v1/batches/{batch_id}/resubmit": Access(_P.ACT, conflict=True),
    "GET /v1/pipelines": Access(_P.LOOK),
    "GET /v1/pipelines/{pipeline}/entities": Access(_P.LOOK),
    "GET /v1/pipelines/{pipeline}/entities/{entity_id}": Access(_P.LOOK),
    "GET /v1/pipelines/{pipeline}/entities/{entity_id}/history": Access(_P.LOOK),
    "POST /v1/pipelines/{pipeline}/entities/{entity_id}/retry": Access(_P.ACT),
    "POST /v1/pipelines/{pipeline}/entities/{entity_id}/approve": Access(_P.ACT, conflict=True),
    "POST /v1/pipelines/{pipeline}/entities/{entity_id}/reject": Access(_P.ACT, conflict=True),
    "DELETE /v1/pipelines/{pipeline}/entities/{entity_id}": Access(_P.ACT, conflict=True),
    "GET /v1/alerts": Access(_P.LOOK),
    "GET /v1/alerts/{alert_id}": Access(_P.LOOK),
    "POST /v1/alerts/{alert_id}/acknowledge": Access(_P.ACT, conflict=True),
    "GET /v1/alert-rules": Access(_P.LOOK),
    "POST /v1/alert-rules": Access(_P.ACT, conflict=True),
    "DELETE /v1/alert-rules/{alert_rule_id}": Access(_P.ACT),
    "POST /v1/silences": Access(_P.ACT, conflict=True),
    "GET /v1/silences": Access(_P.LOOK),
    "DELETE /v1/silences/{silence_id}": Access(_P.ACT),
    "POST /v1/channels": Access(_P.ACT, conflict=True),
    "GET /v1/channels": Access(_P.LOOK),
    "GET /v1/channels/{channel_id}": Access(_P.LOOK),
    "POST /v1/channels/{channel_id}/test": Access(_P.ACT, conflict=True),
    "POST /v1/channels/{channel_id}/resume": Access(_P.ACT, conflict=True),
    "DELETE /v1/channels/{channel_id}": Access(_P.ACT, conflict=True),
    "GET /v1/workers": Access(_P.LOOK, default_org=True),
    "GET /v1/audit": Access(_P.LOOK),
    "GET /v1/stats": Access(_P.LOOK, not_found=True),
    "GET /v1/stats/endpoints": Access(_P.LOOK),
    "GET /v1/slo": Access(_P.LOOK),
    "GET /v1/slo/default": Access(_P.LOOK),
    "PUT /v1/slo/default": Access(_P.ACT),
    "POST /v1/keys": Access(_P.ADMINISTER, conflict=True),
    "GET /v1/keys": Access(_P.ADMINISTER),
    "DELETE /v1/keys/{key_id}": Access(_P.ADMINISTER, conflict=True),
    "POST /v1/sign-in-links": Access(_P.LOOK, conflict=True),
    "POST /v1/orgs": Access(_P.ADMINISTER, default_org=True),
    "GET /v1/orgs": Access(_P.ADMINISTER, default_org=True),
}
"""The keys are `METHOD path`, as in the OpenAPI document. Paths outside /v1 are public and not listed."""


def check(key: ApiKey, access: Access) -> None:
    """Raise a FORBIDDEN refusal if the key may not use the route."""
    if refusal := permission_error(key.role, access.permission):
        raise Refusal(Problem.FORBIDDEN, refusal)
    if access.default_org and key.org_id != DEFAULT_ORG:
        raise Refusal(Problem.FORBIDDEN, ONLY_DEFAULT_ORG)


# -- methods -----------------------------------------------------------------------------------------------------

_ANY = "*"
_ID_PLACES = (3, 5)
"""The positions of ids in a path that is split at `/`, for example in `/v1/events/{event_id}/status` and
`/v1/pipelines/{pipeline}/entities/{entity_id}`."""


def methods_of(path: str) -> tuple[str, ...]:
    """The methods that a path supports; empty for an unknown path."""
    if path in _METHODS:
        return _METHODS[path]
    parts = path.split("/")
    for place in _ID_PLACES:
        if not parts[place : place + 1] or not parts[place]:
            return ()
        parts[place] = _ANY
        if found := _METHODS.get("/".join(parts)):
            return found
    return ()


def _by_path() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for method, path in sorted(line.split(" ") for line in ROUTES):
        place = re.sub(r"\{\w+\}", _ANY, path)
        found[place] = (*found.get(place, ()), method)
    return found


_METHODS = _by_path()
