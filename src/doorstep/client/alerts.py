"""Alerts, the rules for them, silences, and channels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from doorstep.client.call import Call, Page, delete, get, one, paged, post
from doorstep.client.verbs import Group, R_co, each_of, verb
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


class Alerts(Group[R_co]):
    """`client.alerts`: what is, or was, the matter."""

    @verb
    def page(
        self,
        *,
        state: AlertState | None = None,
        rule: str | None = None,
        endpoint_id: Id | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[Alert]]:
        """One page, newest first."""
        query = {"state": state, "rule": rule, "endpoint_id": endpoint_id, "limit": limit, "cursor": cursor}
        return get(paged(AlertPage), "/v1/alerts", query=query)

    each = each_of(page)

    @verb
    def read(self, alert_id: Id) -> Call[Alert]:
        """One as it stands."""
        return get(one(Alert), "/v1/alerts/{alert_id}", alert_id)

    @verb
    def acknowledge(self, alert_id: Id, *, reason: str | None = None) -> Call[Alert]:
        """Say that you have seen it and see to it."""
        return post(one(Alert), "/v1/alerts/{alert_id}/acknowledge", alert_id, body={"reason": reason})


class AlertRules(Group[R_co]):
    """`client.alert_rules`: when alerts fire."""

    @verb
    def page(self) -> Call[Page[AlertRule]]:
        """All that hold, the built-in ones too."""
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
        """Change some of its terms, for the organization or for one endpoint."""
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
        """Undo what was changed: what is more general holds again."""
        return delete("/v1/alert-rules/{alert_rule_id}", alert_rule_id)


class Silences(Group[R_co]):
    """`client.silences`: times in which alerts are told to nobody."""

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
        """Begin one, now or later."""
        body = {"until_at": until_at, "from_at": from_at, "endpoint_id": endpoint_id, "rule": rule, "reason": reason}
        return post(one(Silence), "/v1/silences", body=body)

    @verb
    def page(self) -> Call[Page[Silence]]:
        """All there are, those that have ended lately too."""
        return get(paged(SilencePage), "/v1/silences")

    @verb
    def end(self, silence_id: Id) -> Call[None]:
        """End one now."""
        return delete("/v1/silences/{silence_id}", silence_id)


class Channels(Group[R_co]):
    """`client.channels`: where people are told."""

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
        """Make one. For a webhook the answer alone holds the signing secret."""
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
        """All of the organization."""
        return get(paged(ChannelPage), "/v1/channels")

    @verb
    def read(self, channel_id: Id) -> Call[Channel]:
        """One, and how it fares."""
        return get(one(Channel), "/v1/channels/{channel_id}", channel_id)

    @verb
    def test(self, channel_id: Id) -> Call[TestSent]:
        """Send a message that says that it is a test."""
        return post(one(TestSent), "/v1/channels/{channel_id}/test", channel_id)

    @verb
    def resume(self, channel_id: Id) -> Call[Channel]:
        """Send there again after it was disabled."""
        return post(one(Channel), "/v1/channels/{channel_id}/resume", channel_id)

    @verb
    def delete(self, channel_id: Id) -> Call[None]:
        """Nothing is sent there any more."""
        return delete("/v1/channels/{channel_id}", channel_id)
