"""The shapes of channels."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from doorstep.api.schemas import CountedPagination, Id, Shape, Timestamp, iso
from doorstep.clock import to_iso
from doorstep.model.alert import Rule, RuleName
from doorstep.model.channel import ChannelKind
from doorstep.path.channel_form import ChannelForm
from doorstep.path.channel_views import CameOfTest, ChannelView, failed_at

KindName = Literal["webhook", "slack", "email", "apprise"]


class ChannelIn(Shape):
    """Where to tell it. `email` needs a mail server and `apprise` an extra, which the operator sets up."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    kind: KindName
    target: Annotated[str, Field(min_length=1, max_length=2_000)]
    """A URL; for `email`, addresses with commas between them."""
    rules: list[RuleName] = Field(default=[], max_length=10)
    """Only alerts of these rules; none named: all."""
    endpoint_ids: list[Id] = Field(default=[], max_length=100)
    """Only alerts about these endpoints; none named: all."""
    recoveries: bool = True
    """Tell also when it is over."""

    def form(self) -> ChannelForm:
        return ChannelForm(
            name=self.name,
            kind=ChannelKind(self.kind),
            target=self.target,
            rules=tuple(map(Rule, self.rules)),
            endpoint_ids=tuple(self.endpoint_ids),
            recoveries=self.recoveries,
        )


class ChannelOut(Shape):
    """A channel. Of where it goes only as much is shown as lets nobody in."""

    channel_id: UUID
    name: str
    kind: KindName
    target: str
    rules: list[RuleName]
    endpoint_ids: list[UUID]
    recoveries: bool
    state: Literal["active", "disabled"]
    """`disabled`: the receiver asked not to be called again, or has failed for days; messages wait until it is resumed."""
    state_reason: str
    failures: int
    """How many tries in a row failed; they are repeated."""
    last_delivered_at: Timestamp | None
    """The begin of the minute in which a message last arrived, for all its addresses; after two days, of the hour."""
    last_error: str | None
    """Why a message last failed, whether it is tried again or was given up; for a week."""
    last_failed_at: Timestamp | None
    last_test: CameOfTest | None
    """What came of the newest test; null where there was none lately."""
    last_test_at: Timestamp | None
    created_at: Timestamp

    @classmethod
    def of(cls, view: ChannelView) -> ChannelOut:
        return cls(**_fields(view))


class NewChannelOut(ChannelOut):
    """The answer to its creation: the only one that holds a webhook's signing secret."""

    secret: str | None

    @classmethod
    def with_secret(cls, view: ChannelView, secret: str) -> NewChannelOut:
        return cls(**_fields(view), secret=secret if view.channel.means is ChannelKind.WEBHOOK else None)


class ChannelsOut(Shape):
    channels: list[ChannelOut]
    pagination: CountedPagination


class TestSentOut(Shape):
    """Look at the channel in a moment: `last_test` says whether it arrived, and `last_error` why not."""

    channel_id: UUID
    message_id: UUID


def _fields(view: ChannelView) -> dict[str, Any]:
    channel, failed = view.channel, view.last_failed
    return {
        "channel_id": channel.channel_id,
        "name": channel.name,
        "kind": channel.means.value,
        "target": channel.shown,
        "rules": [rule.value for rule in channel.rules],
        "endpoint_ids": list(channel.endpoint_ids),
        "recoveries": channel.recoveries,
        "state": "active" if view.endpoint.state == "active" else "disabled",
        "state_reason": view.endpoint.state_reason,
        "failures": view.circuit.failures,
        "last_delivered_at": iso(view.last_delivered_at),
        "last_error": None if failed is None else f"{failed.code}: {failed.reason}",
        "last_failed_at": None if failed is None else iso(failed_at(failed)),
        "last_test": view.came_of_test,
        "last_test_at": None if view.last_test is None else iso(view.last_test.created_at),
        "created_at": to_iso(channel.created_at),
    }
