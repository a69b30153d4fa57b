"""API keys for a running program, made by the routes that make keys."""

from __future__ import annotations

from doorstep.model.org import Role
from tests.support.program import ADMIN_KEY, Program


def add_key(served: Program, role: Role, *, admin: str = ADMIN_KEY) -> str:
    """A key of the organization whose admin asks for it."""
    answer = served.post("/v1/keys", {"name": "test", "role": role}, key=admin)
    assert answer.status == 201, answer.body
    return str(answer.json["key"])


def add_org(served: Program) -> str:
    """The admin key of a new organization."""
    answer = served.post("/v1/orgs", {"name": "another"})
    assert answer.status == 201, answer.body
    return str(answer.json["admin_key"]["key"])
