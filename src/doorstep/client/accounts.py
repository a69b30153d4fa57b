"""Keys, organizations, the audit log, sign-in links, and the processes that deliver."""

from __future__ import annotations

from datetime import datetime

from doorstep.client.call import Call, Page, delete, get, one, paged, post
from doorstep.client.verbs import Group, R_co, each_of, verb
from doorstep.schemas.accounts import (
    AuditEntry,
    AuditPage,
    Key,
    KeyPage,
    NewKey,
    NewOrg,
    Org,
    OrgPage,
    RoleName,
    SignInLink,
)
from doorstep.schemas.shape import Id
from doorstep.schemas.workers import Worker, WorkerPage


class Keys(Group[R_co]):
    """`client.keys`: the API keys of the organization."""

    @verb
    def create(
        self,
        name: str,
        role: RoleName,
        *,
        expires_at: datetime | None = None,
    ) -> Call[NewKey]:
        """Make one. The answer alone holds the key itself."""
        return post(one(NewKey), "/v1/keys", body={"name": name, "role": role, "expires_at": expires_at})

    @verb
    def page(self, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[Key]]:
        """One page of them."""
        return get(paged(KeyPage), "/v1/keys", query={"limit": limit, "cursor": cursor})

    each = each_of(page)

    @verb
    def revoke(self, key_id: Id) -> Call[None]:
        """It is refused from now on."""
        return delete("/v1/keys/{key_id}", key_id)


class Orgs(Group[R_co]):
    """`client.orgs`: for admins of the default organization."""

    @verb
    def create(self, name: str) -> Call[NewOrg]:
        """Make one, with its first key."""
        return post(one(NewOrg), "/v1/orgs", body={"name": name})

    @verb
    def page(self, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[Org]]:
        """One page of them."""
        return get(paged(OrgPage), "/v1/orgs", query={"limit": limit, "cursor": cursor})

    each = each_of(page)


class SignInLinks(Group[R_co]):
    """`client.sign_in_links`: ways into the console."""

    @verb
    def create(self) -> Call[SignInLink]:
        """One that signs in a browser as this client's key, once. Its path is one of the server that was asked."""
        return post(one(SignInLink), "/v1/sign-in-links")


class Audit(Group[R_co]):
    """`client.audit`: who did what."""

    @verb
    def page(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[AuditEntry]]:
        """One page, newest first."""
        query = {"actor": actor, "action": action, "limit": limit, "cursor": cursor}
        return get(paged(AuditPage), "/v1/audit", query=query)

    each = each_of(page)


class Workers(Group[R_co]):
    """`client.workers`: for keys of the default organization."""

    @verb
    def page(self) -> Call[Page[Worker]]:
        """All there are, those that were lost within a day too."""
        return get(paged(WorkerPage), "/v1/workers")
