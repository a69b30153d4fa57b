"""Which endpoints an event goes to."""

from __future__ import annotations

from collections.abc import Iterable

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


def route(endpoints: Iterable[Endpoint], event_type: str) -> tuple[Endpoint, ...]:
    """Those of an organization's endpoints that take events of this type, in the same order.

    Paused and disabled endpoints are included: their deliveries are held, not dropped.
    """
    return tuple(one for one in endpoints if any(matches(pattern, event_type) for pattern in one.event_types))
