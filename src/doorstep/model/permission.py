"""What a role may do: one table, for the HTTP API and the console alike."""

from __future__ import annotations

from enum import StrEnum

from doorstep.model.org import Role


class Permission(StrEnum):
    SEND = "send"
    """Send events."""
    STATUS = "status"
    """Read the status of events."""
    LOOK = "look"
    """Read everything else: payloads, the inbox, attempts, endpoints, lists, the audit log."""
    ACT = "act"
    """Change deliveries, events and endpoints; take events out of the inbox."""
    ADMINISTER = "administer"
    """Make and revoke keys; in the default organization also make organizations."""


ONLY_DEFAULT_ORG = "only keys of the default organization may do that"

_P = Permission

ALLOWED: dict[Role, frozenset[Permission]] = {
    Role.ADMIN: frozenset(Permission),
    Role.OPERATOR: frozenset(Permission) - {_P.ADMINISTER},
    Role.VIEWER: frozenset({_P.STATUS, _P.LOOK}),
    Role.PUBLISHER: frozenset({_P.SEND, _P.STATUS}),
}


def roles_with(permission: Permission) -> list[str]:
    return [role.value for role, allowed in ALLOWED.items() if permission in allowed]


def refusal_of(role: Role, permission: Permission) -> str | None:
    """What is said to a role that may not do that; None to one that may."""
    if permission in ALLOWED[role]:
        return None
    return f"the role {role} may not do that; use a key with the role {' or '.join(roles_with(permission))}"
