"""API keys for a running program, made behind its back: there is no route for it yet."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

from doorstep import Doorstep, Settings, keys
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.model.org import ApiKey, Org, Role
from tests.integration.program import Program


def add_key(served: Program, role: Role, *, new_org: bool = False) -> str:
    """A key of the default organization, or of a new one."""
    key, org_id = keys.new_key(), uuid4() if new_org else DEFAULT_ORG
    asyncio.run(_store(served, key, org_id, role))
    return key


async def _store(served: Program, key: str, org_id: UUID, role: Role) -> None:
    doorstep = Doorstep(Settings(database_url=f"sqlite:///{served.folder}/data/doorstep.db"))
    await doorstep.open(migrate=False)
    try:
        now = doorstep.clock.now()
        if org_id != DEFAULT_ORG:
            await doorstep.store.put_org(Org(org_id=org_id, name="another", created_at=now))
        await doorstep.store.put_key(
            ApiKey(
                key_id=uuid4(),
                org_id=org_id,
                name="test",
                role=role,
                prefix=keys.prefix(key),
                digest=keys.digest(key),
                created_at=now,
            )
        )
    finally:
        await doorstep.close()
