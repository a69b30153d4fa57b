"""A channel: where an organization wants to be told of alerts.

Messages are delivered by Doorstep itself: each channel is an endpoint of a reserved organization, under the same id. So
they are retried, logged and guarded like everything else.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from doorstep.clock import Instant
from doorstep.model.alert import AlertRule, Rule, Silence
from doorstep.model.noun import Noun

OPERATIONS_ORG = UUID("00000000-0000-7000-8000-000000000002")
"""The organization that owns the channels' endpoints and messages. No key acts for it, and no list shows it."""


class ChannelKind(StrEnum):
    WEBHOOK = "webhook"
    """An HTTP request in JSON, signed by Standard Webhooks."""
    SLACK = "slack"
    """A Slack-compatible incoming webhook (Mattermost, Rocket.Chat, Discord's `/slack` and others take the same)."""
    EMAIL = "email"
    """Over the SMTP server of the settings."""
    APPRISE = "apprise"
    """Whatever the library Apprise can reach; in a process of its own."""


class ChannelTest(Noun, frozen=True):
    """A message that somebody sent to see whether it arrives."""

    message_id: UUID
    at: Instant


class Channel(Noun, frozen=True, kw_only=True, tag="channel", tag_field="kind"):
    channel_id: UUID
    """Also the id of its endpoint in the reserved organization."""
    org_id: UUID
    name: str
    means: ChannelKind
    shown: str
    """Where it goes, as it may be shown: without what would let others in. The whole is with its endpoint."""
    rules: tuple[Rule, ...] = ()
    """Only alerts of these rules; none named: all."""
    endpoint_ids: tuple[UUID, ...] = ()
    """Only alerts about these endpoints; none named: all."""
    recoveries: bool = True
    """Tell also when it is over."""
    tests: tuple[ChannelTest, ...] = ()
    """The newest ones, oldest first; how many there may be counts for all processes together."""
    created_at: Instant = 0
    version: int = 0

    @property
    def arrangement_id(self) -> UUID:
        return self.channel_id

    @property
    def ends_at(self) -> Instant | None:
        return None

    def wants(self, rule: Rule, endpoint_id: UUID | None, *, recovery: bool) -> bool:
        return (
            (not self.rules or rule in self.rules)
            and (not self.endpoint_ids or endpoint_id in self.endpoint_ids)
            and (self.recoveries or not recovery)
        )


Arrangement = AlertRule | Silence | Channel
"""What an organization arranged about its alerts: few, small, and read together."""
