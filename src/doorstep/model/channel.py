"""A channel: where an organization wants to be told of alerts.

Messages are delivered by Doorstep itself: each channel is an endpoint of a reserved organization, under the same id. So
they are retried, logged and guarded like everything else.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID, uuid5

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

    channel_id: UUID
    message_id: UUID
    at: Instant
    addresses: int = 0
    """How many e-mail addresses it went to."""


class ChannelTests(Noun, frozen=True, kw_only=True, tag="tests", tag_field="kind"):
    """The tests that an organization has made lately, and the last one of each channel. It is kept by itself: a channel
    that is deleted takes nothing away from how many there were."""

    org_id: UUID
    tests: tuple[ChannelTest, ...] = ()
    """Oldest first."""
    version: int = 0

    @property
    def arrangement_id(self) -> UUID:
        """One for each organization."""
        return uuid5(self.org_id, "channel-tests")

    @property
    def ends_at(self) -> Instant | None:
        return None

    def last_of(self, channel_id: UUID) -> ChannelTest | None:
        return next((one for one in reversed(self.tests) if one.channel_id == channel_id), None)


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


Arrangement = AlertRule | Silence | Channel | ChannelTests
"""What an organization arranged about its alerts: few, small, and read together. What it tried out is among them."""
