"""Keys, organizations, the audit log, sign-in links and workers; alerts, their rules, silences and channels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from doorstep.client.call import Call, Page, Paging, delete, get, one, paged, post
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
from doorstep.schemas.alerts import (
    Alert,
    AlertPage,
    AlertRule,
    AlertRulePage,
    AlertState,
    Channel,
    ChannelKindName,
    ChannelPage,
    NewChannel,
    Silence,
    SilencePage,
    TestSent,
)
from doorstep.schemas.shape import Id
from doorstep.schemas.stats import Worker, WorkerPage


class Keys(Group[R_co]):
    """`client.keys`: the API keys of the organization."""

    @verb
    def create(self, name: str, role: RoleName, *, expires_at: datetime | None = None) -> Call[NewKey]:
        """Create a key. Only this response contains the key itself."""
        return post(one(NewKey), "/v1/keys", body={"name": name, "role": role, "expires_at": expires_at})

    @verb
    def page(self, **paging: Unpack[Paging]) -> Call[Page[Key]]:
        """One page of keys."""
        return get(paged(KeyPage), "/v1/keys", query=paging)

    each = each_of(page)

    @verb
    def revoke(self, key_id: Id) -> Call[None]:
        """Revoke a key. Other server processes may accept it for up to 5 more seconds."""
        return delete("/v1/keys/{key_id}", key_id)


class Orgs(Group[R_co]):
    """`client.orgs`: the organizations. Only admins of the default organization may use these methods."""

    @verb
    def create(self, name: str) -> Call[NewOrg]:
        """Create an organization, with its first key."""
        return post(one(NewOrg), "/v1/orgs", body={"name": name})

    @verb
    def page(self, **paging: Unpack[Paging]) -> Call[Page[Org]]:
        """One page of organizations."""
        return get(paged(OrgPage), "/v1/orgs", query=paging)

    each = each_of(page)


class SignInLinks(Group[R_co]):
    """`client.sign_in_links`: links to the console."""

    @verb
    def create(self) -> Call[SignInLink]:
        """Create a single-use link that signs a browser in with this client's key. To get the full link, append its
        path to the server URL."""
        return post(one(SignInLink), "/v1/sign-in-links")


class Audit(Group[R_co]):
    """`client.audit`: the audit log."""

    @verb
    def page(
        self, *, actor: str | None = None, action: str | None = None, **paging: Unpack[Paging]
    ) -> Call[Page[AuditEntry]]:
        """One page of audit entries, newest first."""
        return get(paged(AuditPage), "/v1/audit", query={"actor": actor, "action": action, **paging})

    each = each_of(page)


class Workers(Group[R_co]):
    """`client.workers`: the worker processes. Only keys of the default organization may list them."""

    @verb
    def page(self) -> Call[Page[Worker]]:
        """All workers, including those lost within the last day."""
        return get(paged(WorkerPage), "/v1/workers")


class Alerts(Group[R_co]):
    """`client.alerts`."""

    @verb
    def page(
        self,
        *,
        state: AlertState | None = None,
        rule: str | None = None,
        endpoint_id: Id | None = None,
        **paging: Unpack[Paging],
    ) -> Call[Page[Alert]]:
        """One page of alerts, newest first."""
        query = {"state": state, "rule": rule, "endpoint_id": endpoint_id, **paging}
        return get(paged(AlertPage), "/v1/alerts", query=query)

    each = each_of(page)

    @verb
    def read(self, alert_id: Id) -> Call[Alert]:
        """One alert."""
        return get(one(Alert), "/v1/alerts/{alert_id}", alert_id)

    @verb
    def acknowledge(self, alert_id: Id, *, reason: str | None = None) -> Call[Alert]:
        """Acknowledge an alert, to show that somebody is working on it."""
        return post(one(Alert), "/v1/alerts/{alert_id}/acknowledge", alert_id, body={"reason": reason})


class AlertRules(Group[R_co]):
    """`client.alert_rules`: the rules that raise alerts."""

    @verb
    def page(self) -> Call[Page[AlertRule]]:
        """All rules in effect, including the built-in ones."""
        return get(paged(AlertRulePage), "/v1/alert-rules")

    @verb
    def set(
        self,
        rule: str,
        *,
        endpoint_id: Id | None = None,
        enabled: bool | None = None,
        threshold: float | None = None,
        window_seconds: float | None = None,
        minimum: int | None = None,
        cooldown_seconds: float | None = None,
    ) -> Call[AlertRule]:
        """Change a rule, for the organization or for one endpoint."""
        body = {
            "rule": rule,
            "endpoint_id": endpoint_id,
            "enabled": enabled,
            "threshold": threshold,
            "window_seconds": window_seconds,
            "minimum": minimum,
            "cooldown_seconds": cooldown_seconds,
        }
        return post(one(AlertRule), "/v1/alert-rules", body=body)

    @verb
    def reset(self, alert_rule_id: Id) -> Call[None]:
        """Undo a change to a rule. The organization's rule or the built-in one applies again."""
        return delete("/v1/alert-rules/{alert_rule_id}", alert_rule_id)


class Silences(Group[R_co]):
    """`client.silences`: periods in which nobody is notified of alerts."""

    @verb
    def create(
        self,
        until_at: datetime,
        *,
        from_at: datetime | None = None,
        endpoint_id: Id | None = None,
        rule: str | None = None,
        reason: str | None = None,
    ) -> Call[Silence]:
        """Create a silence that begins now or later."""
        body = {"until_at": until_at, "from_at": from_at, "endpoint_id": endpoint_id, "rule": rule, "reason": reason}
        return post(one(Silence), "/v1/silences", body=body)

    @verb
    def page(self) -> Call[Page[Silence]]:
        """All silences, including those that ended recently."""
        return get(paged(SilencePage), "/v1/silences")

    @verb
    def end(self, silence_id: Id) -> Call[None]:
        """End a silence now."""
        return delete("/v1/silences/{silence_id}", silence_id)


class Channels(Group[R_co]):
    """`client.channels`: where notifications of alerts are sent."""

    @verb
    def create(
        self,
        name: str,
        kind: ChannelKindName,
        target: str,
        *,
        rules: Sequence[str] | None = None,
        endpoint_ids: Sequence[Id] | None = None,
        recoveries: bool | None = None,
    ) -> Call[NewChannel]:
        """Create a channel. For a webhook, only this response contains the signing secret."""
        body = {
            "name": name,
            "kind": kind,
            "target": target,
            "rules": rules,
            "endpoint_ids": endpoint_ids,
            "recoveries": recoveries,
        }
        return post(one(NewChannel), "/v1/channels", body=body)

    @verb
    def page(self) -> Call[Page[Channel]]:
        """All channels of the organization."""
        return get(paged(ChannelPage), "/v1/channels")

    @verb
    def read(self, channel_id: Id) -> Call[Channel]:
        """One channel and its health."""
        return get(one(Channel), "/v1/channels/{channel_id}", channel_id)

    @verb
    def test(self, channel_id: Id) -> Call[TestSent]:
        """Send a test message."""
        return post(one(TestSent), "/v1/channels/{channel_id}/test", channel_id)

    @verb
    def resume(self, channel_id: Id) -> Call[Channel]:
        """Resume a channel that was disabled."""
        return post(one(Channel), "/v1/channels/{channel_id}/resume", channel_id)

    @verb
    def delete(self, channel_id: Id) -> Call[None]:
        """Delete a channel."""
        return delete("/v1/channels/{channel_id}", channel_id)
