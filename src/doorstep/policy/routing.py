"""Which endpoints an event goes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from uuid import UUID

from doorstep.model.endpoint import Endpoint


def matches(pattern: str, event_type: str) -> bool:
    """A pattern is an exact name, or ends with `*`, which matches any ending: `user.*` matches `user.created`."""
    return event_type.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == event_type


def most_specific(patterns: Iterable[str], event_type: str) -> str | None:
    """The longest pattern that matches; an exact name beats every pattern."""
    fitting = [pattern for pattern in patterns if matches(pattern, event_type)]
    return max(fitting, key=lambda pattern: (not pattern.endswith("*"), len(pattern)), default=None)


def subscribes(endpoint: Endpoint, event_type: str) -> bool:
    """Whether the endpoint subscribes to this type by name or with a pattern; `*` alone does not count."""
    return any(pattern != "*" and matches(pattern, event_type) for pattern in endpoint.event_types)


class RouteTable:
    """The endpoints for each event type, cached because senders reuse their event types.

    Paused and disabled endpoints are included: their deliveries are held, not dropped.
    """

    _CACHED_MAX = 10_000
    """The maximum number of cached entries. Usually there are few event types, but a sender that keeps inventing new
    ones must not use up the memory."""

    def __init__(self, endpoints: Collection[Endpoint]) -> None:
        self._by_org: dict[UUID, list[Endpoint]] = defaultdict(list)
        for endpoint in endpoints:
            self._by_org[endpoint.org_id].append(endpoint)
        self._cached: dict[tuple[UUID, str], tuple[Endpoint, ...]] = {}

    def route(self, org_id: UUID, event_type: str) -> tuple[Endpoint, ...]:
        known = self._cached.get((org_id, event_type))
        return known if known is not None else self._compute(org_id, event_type)

    def _compute(self, org_id: UUID, event_type: str) -> tuple[Endpoint, ...]:
        if len(self._cached) >= self._CACHED_MAX:
            self._cached.clear()
        found = tuple(
            endpoint
            for endpoint in self._by_org.get(org_id, ())
            if any(matches(pattern, event_type) for pattern in endpoint.event_types)
        )
        self._cached[org_id, event_type] = found
        return found
