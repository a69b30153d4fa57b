"""Creates API keys for a running program through its HTTP API."""

from __future__ import annotations

from doorstep.model.org import Role
from tests.support.program import ADMIN_KEY, Program


def add_key(served: Program, role: Role, *, admin: str = ADMIN_KEY) -> str:
    """Create a key in the organization of the given admin key."""
    answer = served.post("/v1/keys", {"name": "test", "role": role}, key=admin)
    assert answer.status == 201, answer.body
    return str(answer.json["key"])


def add_org(served: Program) -> str:
    """Create an organization and return its admin key."""
    answer = served.post("/v1/orgs", {"name": "another"})
    assert answer.status == 201, answer.body
    return str(answer.json["admin_key"]["key"])
