"""The audit log: who did what, when, to which ids, with what result."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from doorstep.api.auth import Caller
from doorstep.api.routing import group
from doorstep.api.schemas import Asked, Pagination, Shape, Timestamp
from doorstep.app import Doorstep
from doorstep.clock import to_iso
from doorstep.model.act import AuditLine


class AuditAsked(Asked):
    actor: str | None = Field(None, max_length=200)
    """Who: the visible beginning of a key, or the name of a service."""
    action: str | None = Field(None, max_length=200)


class AuditLineOut(Shape):
    at: Timestamp
    actor: str
    action: str
    subjects: list[str]
    result: str
    reason: str

    @classmethod
    def of(cls, line: AuditLine) -> AuditLineOut:
        return cls(
            at=to_iso(line.at),
            actor=line.actor,
            action=line.action,
            subjects=list(line.subjects),
            result=line.result,
            reason=line.reason,
        )


class AuditOut(Shape):
    audit: list[AuditLineOut]
    pagination: Pagination


def audit_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1", "audit")

    @router.get("/audit")
    async def list_audit(asked: Annotated[AuditAsked, Query()], caller: Caller) -> AuditOut:
        """Every act of people and programs that changed something, newest first."""
        page = await doorstep.components.reader.audit(
            caller.org_id, asked.actor, asked.action, asked.cursor, asked.limit
        )
        lines = [AuditLineOut.of(line) for line in page.items]
        return AuditOut(audit=lines, pagination=Pagination.of(page, asked.limit))

    return router
