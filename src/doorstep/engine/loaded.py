"""The organizations that a process has loaded, each with all its endpoints.

An organization is loaded when it is first needed. It is brought up to date when its routing version has changed: only
the endpoints that have changed are read again. If very many endpoints are loaded, the organizations that are not in use
are forgotten. So neither the cost of a change nor the memory of a process depends on how many endpoints there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from doorstep.errors import NotFound
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.listing import RoutingChanges
from doorstep.model.org import Org, Routing
from doorstep.policy import routing as rules
from doorstep.stores.store import Store

LOADED_MAX = 20_000
"""The number of endpoints above which organizations are forgotten. An endpoint takes about 3 KB."""
IDLE_SECONDS = 5.0
"""An organization that was needed so recently is not forgotten."""
_EVICTION_PAUSE_SECONDS = 1.0
_ROUTES_MAX = 10_000
"""The maximum number of event types in the cache. Usually there are few, but a sender that keeps inventing new ones must
not use up the memory."""


class _Known:
    """An organization as it was loaded."""

    __slots__ = ("endpoints", "org", "used_at", "version")

    def __init__(self, routing: Routing) -> None:
        self.endpoints: dict[UUID, Endpoint] = {}
        """All that are not deleted, oldest first. A deleted organization has none."""
        self.org: Org | None = None
        """None if the organization was deleted."""
        self.version = routing.version
        self.used_at = time.monotonic()

    @property
    def size(self) -> int:
        return 1 + len(self.endpoints)


class LoadedOrgs:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._orgs: dict[UUID, _Known] = {}
        self._endpoints: dict[UUID, Endpoint] = {}
        """All loaded endpoints by id."""
        self._routes: dict[tuple[UUID, str], tuple[int, tuple[Endpoint, ...]]] = {}
        """The endpoints for each event type, with the routing version for which they were found."""
        self._seen: int | None = None
        """The latest routing version of all organizations at the last refresh."""
        self._in_use: list[Callable[[], Collection[UUID]]] = []
        self._evict_after = 0.0

    # -- loading -------------------------------------------------------------------------------------------

    async def load(self, org_ids: Collection[UUID]) -> None:
        """Load those of these organizations that are not loaded yet, in one read. All of them then stay loaded for at
        least IDLE_SECONDS."""
        now, missing = time.monotonic(), []
        for org_id in org_ids:
            known = self._orgs.get(org_id)
            if known is None:
                missing.append(org_id)
            else:
                known.used_at = now
        if missing:
            await self._read(missing)
            self._evict(time.monotonic())

    async def reload(self, org_ids: Collection[UUID]) -> None:
        """Bring these organizations up to date, as far as they are loaded."""
        await self._read([org_id for org_id in org_ids if org_id in self._orgs])

    async def refresh(self) -> None:
        """Bring everything that is loaded up to date. If nothing has changed, this costs one cheap read."""
        seen = self._seen
        changes = await self._store.find(None, RoutingChanges(since=seen))
        if seen and not changes:  # another database has replaced the one that was read
            self._forget(list(self._orgs))
        changed = [org_id for org_id, version in changes if self._is_stale(org_id, version)]
        await self._read(list(self._orgs) if seen is None else changed)
        self._seen = max((version for _, version in changes), default=0)

    def _is_stale(self, org_id: UUID, version: int) -> bool:
        known = self._orgs.get(org_id)
        return known is not None and known.version != version

    async def _read(self, org_ids: Collection[UUID]) -> None:
        known = {org_id: self._orgs[org_id].version if org_id in self._orgs else -1 for org_id in org_ids}
        for routing in await self._store.routing(known) if known else ():
            self._use(routing, known[routing.org.org_id])

    def _use(self, routing: Routing, base: int) -> None:
        """Use a routing that was read when the version `base` was known."""
        org_id = routing.org.org_id
        known = self._orgs.get(org_id)
        if base > routing.version or (base < 0 and known is None):  # it has all endpoints
            self._forget([org_id])
            known = self._orgs[org_id] = _Known(routing)
        elif known is None or known.version >= routing.version:
            return  # in the meantime it was forgotten, or another task has loaded a newer version
        known.version, known.org = routing.version, None if routing.org.deleted_at else routing.org
        removed = [one.endpoint_id for one in routing.endpoints if one.state is EndpointState.DELETED]
        kept = {one.endpoint_id: one for one in routing.endpoints if one.state is not EndpointState.DELETED}
        self._forget_endpoints([*removed, *kept] if known.org else [*kept, *known.endpoints])
        for endpoint_id in removed if known.org else [*known.endpoints]:
            known.endpoints.pop(endpoint_id, None)
        if known.org:
            known.endpoints.update(kept)
            self._endpoints.update(kept)

    # -- forgetting ----------------------------------------------------------------------------------------

    def keep(self, in_use: Callable[[], Collection[UUID]]) -> None:
        """Never forget the organizations that `in_use` returns."""
        self._in_use.append(in_use)

    def _evict(self, now: float) -> None:
        """Forget the organizations that have not been needed for longest, if too much is loaded."""
        excess = len(self._orgs) + len(self._endpoints) - LOADED_MAX
        if excess <= 0 or now < self._evict_after:
            return
        in_use = {org_id for users in self._in_use for org_id in users()}
        idle = [one for one, known in self._orgs.items() if known.used_at < now - IDLE_SECONDS and one not in in_use]
        idle.sort(key=lambda org_id: self._orgs[org_id].used_at)
        while idle and excess > -LOADED_MAX // 10:  # a little more, so that this is done seldom
            org_id = idle.pop(0)
            excess -= self._orgs[org_id].size
            self._forget([org_id])
        self._evict_after = now + _EVICTION_PAUSE_SECONDS

    def _forget(self, org_ids: Collection[UUID]) -> None:
        for org_id in org_ids:
            if known := self._orgs.pop(org_id, None):
                self._forget_endpoints(known.endpoints)

    def _forget_endpoints(self, endpoint_ids: Collection[UUID]) -> None:
        """Forget these endpoints, and everything that was computed from them."""
        for endpoint_id in endpoint_ids:
            self._endpoints.pop(endpoint_id, None)

    # -- organizations -------------------------------------------------------------------------------------

    async def check_org(self, org_id: UUID) -> None:
        """Load the organization. Raises NotFound unless it exists."""
        if not await self.has_org(org_id):
            raise NotFound(f"no organization {org_id}")

    async def has_org(self, org_id: UUID) -> bool:
        """Load the organization. Returns whether it exists and is not deleted."""
        await self.load((org_id,))
        return self.org(org_id) is not None

    def is_loaded(self, org_id: UUID) -> bool:
        return org_id in self._orgs

    def org(self, org_id: UUID) -> Org | None:
        """A loaded organization; None if it was deleted."""
        known = self._orgs.get(org_id)
        return known.org if known else None

    def versions(self, org_ids: Collection[UUID]) -> dict[UUID, int]:
        """The routing versions of loaded organizations."""
        return {org_id: self._orgs[org_id].version for org_id in org_ids if org_id in self._orgs}

    # -- endpoints -----------------------------------------------------------------------------------------

    async def endpoints_of(self, org_id: UUID) -> Sequence[Endpoint]:
        """The current endpoints of an organization that are not deleted, oldest first."""
        await (self.reload if org_id in self._orgs else self.load)((org_id,))
        known = self._orgs.get(org_id)
        return tuple(known.endpoints.values()) if known else ()

    def endpoint(self, endpoint_id: UUID) -> Endpoint | None:
        """A loaded endpoint; None if it was deleted or its organization is not loaded."""
        return self._endpoints.get(endpoint_id)

    def route(self, org_id: UUID, event_type: str) -> tuple[Endpoint, ...]:
        """The endpoints of a loaded organization that take events of this type."""
        known = self._orgs.get(org_id)
        if known is None:
            return ()
        version, found = self._routes.get((org_id, event_type), (-1, ()))
        if version != known.version:
            if len(self._routes) >= _ROUTES_MAX:
                self._routes.clear()
            found = rules.route(known.endpoints.values(), event_type)
            self._routes[org_id, event_type] = known.version, found
        return found
