"""Keys, organizations, the audit log, sign-in links and workers; alerts, their rules, silences and channels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict, Unpack

from doorstep.client.call import Call, Page, Paging, delete, get, one, paged, patch, post
from doorstep.client.verbs import Group, R_co, each_of, verb
from doorstep.schemas import accounts, alerts, stats
from doorstep.schemas.shape import Id


class Keys(Group[R_co]):
    """`client.keys`: the API keys of the organization."""

    @verb
    def create(
        self, name: str, role: accounts.RoleName, *, expires_at: datetime | None = None, user_id: str | None = None
    ) -> Call[accounts.NewKey]:
        """Create a key. Only this response contains the key itself. A key with a user can access only the events of this
        user; its role is `publisher`, `consumer` or `viewer`."""
        body = {"name": name, "role": role, "expires_at": expires_at, "user_id": user_id}
        return post(one(accounts.NewKey), "/v1/keys", body=body)

    @verb
    def page(self, **paging: Unpack[Paging]) -> Call[Page[accounts.Key]]:
        """One page of keys."""
        return get(paged(accounts.KeyPage), "/v1/keys", query=paging)

    each = each_of(page)

    @verb
    def revoke(self, key_id: Id) -> Call[None]:
        """Revoke a key. Other server processes may accept it for up to 5 more seconds."""
        return delete("/v1/keys/{key_id}", key_id)


class Orgs(Group[R_co]):
    """`client.orgs`: the organizations. Only admins of the default organization may use these methods."""

    @verb
    def create(self, name: str) -> Call[accounts.NewOrg]:
        """Create an organization, with its first key."""
        return post(one(accounts.NewOrg), "/v1/orgs", body={"name": name})

    @verb
    def rename(self, org_id: Id, name: str) -> Call[accounts.Org]:
        """Rename an organization."""
        return patch(one(accounts.Org), "/v1/orgs/{org_id}", org_id, body={"name": name})

    @verb
    def delete(self, org_id: Id, *, force: bool = False) -> Call[None]:
        """Delete an organization. With `force`, its open deliveries become dead letters; otherwise, they prevent it."""
        return delete("/v1/orgs/{org_id}", org_id, query={"force": "true" if force else None})

    @verb
    def page(self, **paging: Unpack[Paging]) -> Call[Page[accounts.Org]]:
        """One page of organizations."""
        return get(paged(accounts.OrgPage), "/v1/orgs", query=paging)

    each = each_of(page)


class SignInLinks(Group[R_co]):
    """`client.sign_in_links`: links to the console."""

    @verb
    def create(self) -> Call[accounts.SignInLink]:
        """Create a single-use link that signs a browser in with this client's key. To get the full link, append its
        path to the server URL."""
        return post(one(accounts.SignInLink), "/v1/sign-in-links")


class Audit(Group[R_co]):
    """`client.audit`: the audit log."""

    @verb
    def page(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **paging: Unpack[Paging],
    ) -> Call[Page[accounts.AuditEntry]]:
        """One page of audit entries, newest first. `actor` is a name, or the visible prefix of a key."""
        query = {"actor": actor, "action": action, "since": since, "until": until, **paging}
        return get(paged(accounts.AuditPage), "/v1/audit", query=query)

    each = each_of(page)


class Workers(Group[R_co]):
    """`client.workers`: the worker processes. Only keys of the default organization may list them."""

    @verb
    def page(self) -> Call[Page[stats.Worker]]:
        """All workers, including those lost within the last day."""
        return get(paged(stats.WorkerPage), "/v1/workers")


class Alerts(Group[R_co]):
    """`client.alerts`."""

    @verb
    def page(
        self,
        *,
        state: alerts.AlertState | None = None,
        rule: str | None = None,
        endpoint_id: Id | None = None,
        **paging: Unpack[Paging],
    ) -> Call[Page[alerts.Alert]]:
        """One page of alerts, newest first."""
        query = {"state": state, "rule": rule, "endpoint_id": endpoint_id, **paging}
        return get(paged(alerts.AlertPage), "/v1/alerts", query=query)

    each = each_of(page)

    @verb
    def read(self, alert_id: Id) -> Call[alerts.Alert]:
        """One alert."""
        return get(one(alerts.Alert), "/v1/alerts/{alert_id}", alert_id)

    @verb
    def acknowledge(self, alert_id: Id, *, reason: str | None = None) -> Call[alerts.Alert]:
        """Acknowledge an alert, to show that somebody is working on it."""
        return post(one(alerts.Alert), "/v1/alerts/{alert_id}/acknowledge", alert_id, body={"reason": reason})


class RuleChanges(TypedDict, total=False):
    """The keyword arguments that change a rule."""

    endpoint_id: Id | None
    enabled: bool | None
    threshold: float | None
    window_seconds: float | None
    minimum: int | None
    cooldown_seconds: float | None


class AlertRules(Group[R_co]):
    """`client.alert_rules`: the rules that raise alerts."""

    @verb
    def page(self) -> Call[Page[alerts.AlertRule]]:
        """All rules in effect, including the built-in ones."""
        return get(paged(alerts.AlertRulePage), "/v1/alert-rules")

    @verb
    def set(self, rule: str, **changes: Unpack[RuleChanges]) -> Call[alerts.AlertRule]:
        """Change a rule, for the organization or for one endpoint."""
        return post(one(alerts.AlertRule), "/v1/alert-rules", body={"rule": rule, **changes})

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
    ) -> Call[alerts.Silence]:
        """Create a silence that begins now or later."""
        body = {"until_at": until_at, "from_at": from_at, "endpoint_id": endpoint_id, "rule": rule, "reason": reason}
        return post(one(alerts.Silence), "/v1/silences", body=body)

    @verb
    def page(self) -> Call[Page[alerts.Silence]]:
        """All silences, including those that ended recently."""
        return get(paged(alerts.SilencePage), "/v1/silences")

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
        kind: alerts.ChannelKindName,
        target: str,
        *,
        rules: Sequence[str] | None = None,
        endpoint_ids: Sequence[Id] | None = None,
        recoveries: bool | None = None,
    ) -> Call[alerts.NewChannel]:
        """Create a channel. For a webhook, only this response contains the signing secret."""
        body = {
            "name": name,
            "kind": kind,
            "target": target,
            "rules": rules,
            "endpoint_ids": endpoint_ids,
            "recoveries": recoveries,
        }
        return post(one(alerts.NewChannel), "/v1/channels", body=body)

    @verb
    def page(self) -> Call[Page[alerts.Channel]]:
        """All channels of the organization."""
        return get(paged(alerts.ChannelPage), "/v1/channels")

    @verb
    def kinds(self) -> Call[Page[alerts.ChannelKind]]:
        """The kinds of channels, and why some of them are not available on this server."""
        return get(paged(alerts.ChannelKindPage), "/v1/channel-kinds")

    @verb
    def read(self, channel_id: Id) -> Call[alerts.Channel]:
        """One channel and its health."""
        return get(one(alerts.Channel), "/v1/channels/{channel_id}", channel_id)

    @verb
    def test(self, channel_id: Id) -> Call[alerts.TestSent]:
        """Send a test message."""
        return post(one(alerts.TestSent), "/v1/channels/{channel_id}/test", channel_id)

    @verb
    def resume(self, channel_id: Id) -> Call[alerts.Channel]:
        """Resume a channel that was disabled."""
        return post(one(alerts.Channel), "/v1/channels/{channel_id}/resume", channel_id)

    @verb
    def delete(self, channel_id: Id) -> Call[None]:
        """Delete a channel."""
        return delete("/v1/channels/{channel_id}", channel_id)
