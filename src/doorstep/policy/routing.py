"""Which endpoints an event goes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from uuid import UUID

from doorstep.model.endpoint import Endpoint


def matches(pattern: str, event_type: str) -> bool:
    """An exact name, or a final `*` for any rest: `user.*` takes `user.created`; `*` takes everything."""
    return event_type.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == event_type


def most_specific(patterns: Iterable[str], event_type: str) -> str | None:
    """The longest pattern that matches; an exact name beats every pattern."""
    fitting = [pattern for pattern in patterns if matches(pattern, event_type)]
    return max(fitting, key=lambda pattern: (not pattern.endswith("*"), len(pattern)), default=None)


def subscribes(endpoint: Endpoint, event_type: str) -> bool:
    """Whether it asked for this type by name or by a pattern that says something; a bare `*` does not."""
    return any(pattern != "*" and matches(pattern, event_type) for pattern in endpoint.event_types)


class RouteTable:
    """The answers of `matches` for one picture of the endpoints, remembered: senders repeat their event types.

    Paused and disabled endpoints are routed to as well: their deliveries are held, not dropped.
    """

    _REMEMBERED_MAX = 10_000  # event types are few; a sender that invents them must not fill the memory

    def __init__(self, endpoints: Collection[Endpoint]) -> None:
        self._by_org: dict[UUID, list[Endpoint]] = defaultdict(list)
        for endpoint in endpoints:
            self._by_org[endpoint.org_id].append(endpoint)
        self._remembered: dict[tuple[UUID, str], tuple[Endpoint, ...]] = {}

    def route(self, org_id: UUID, event_type: str) -> tuple[Endpoint, ...]:
        known = self._remembered.get((org_id, event_type))
        return known if known is not None else self._work_out(org_id, event_type)

    def _work_out(self, org_id: UUID, event_type: str) -> tuple[Endpoint, ...]:
        if len(self._remembered) >= self._REMEMBERED_MAX:
            self._remembered.clear()
        found = tuple(
            endpoint
            for endpoint in self._by_org.get(org_id, ())
            if any(matches(pattern, event_type) for pattern in endpoint.event_types)
        )
        self._remembered[org_id, event_type] = found
        return found
