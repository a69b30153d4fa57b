"""Channels: where an organization wants to be told of alerts."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from doorstep.api.alert_schemas import RuleName
from doorstep.api.auth import Caller
from doorstep.api.routing import StrictRoute
from doorstep.api.schemas import CountedPagination, Id, Shape, Timestamp, iso
from doorstep.app import Doorstep
from doorstep.clock import to_iso
from doorstep.model.alert import Rule
from doorstep.model.channel import ChannelKind
from doorstep.path.channel_form import ChannelForm
from doorstep.path.channels import ChannelView

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
    """`disabled`: the receiver asked not to be called again, or has failed for days."""
    failures: int
    """How many messages in a row could not be delivered; they are tried again."""
    last_error: str | None
    """Why a message was last given up."""
    last_failed_at: Timestamp | None
    created_at: Timestamp

    @classmethod
    def of(cls, view: ChannelView) -> ChannelOut:
        return cls(**_channel_fields(view))


class NewChannelOut(ChannelOut):
    """The answer to its creation: the only one that holds a webhook's signing secret."""

    secret: str | None


class ChannelsOut(Shape):
    channels: list[ChannelOut]
    pagination: CountedPagination


class TestSentOut(Shape):
    """Look at the channel in a moment: `last_error` and `failures` say whether it arrived."""

    channel_id: UUID
    message_id: UUID


def channel_routes(doorstep: Doorstep) -> APIRouter:
    router = APIRouter(prefix="/v1/channels", tags=["alerts"], route_class=StrictRoute)

    @router.post("", status_code=201)
    async def create_channel(body: ChannelIn, caller: Caller) -> NewChannelOut:
        """Create a channel. For a webhook the answer holds the signing secret, which cannot be seen again."""
        desk = doorstep.alerting.channels
        channel, secret = await desk.create(body.form(), caller.org_id, caller.prefix)
        shown = secret if channel.means is ChannelKind.WEBHOOK else None
        return NewChannelOut(**_channel_fields(await desk.view(caller.org_id, channel.channel_id)), secret=shown)

    @router.get("")
    async def list_channels(caller: Caller) -> ChannelsOut:
        """The channels of your organization in the order of their creation."""
        channels = [ChannelOut.of(one) for one in await doorstep.alerting.channels.channels(caller.org_id)]
        return ChannelsOut(channels=channels, pagination=CountedPagination.whole(channels))

    @router.get("/{channel_id}")
    async def read_channel(channel_id: UUID, caller: Caller) -> ChannelOut:
        """One channel, and how it fares."""
        return ChannelOut.of(await doorstep.alerting.channels.view(caller.org_id, channel_id))

    @router.post("/{channel_id}/test", status_code=202)
    async def test_channel(channel_id: UUID, caller: Caller) -> TestSentOut:
        """Send a message that says that it is a test."""
        receipt = await doorstep.alerting.channels.test(caller.org_id, channel_id, caller.prefix)
        return TestSentOut(channel_id=channel_id, message_id=receipt.event_id)

    @router.delete("/{channel_id}", status_code=204)
    async def delete_channel(channel_id: UUID, caller: Caller) -> None:
        """Delete a channel; what still waits for it is dropped."""
        await doorstep.alerting.channels.delete(caller.org_id, channel_id, caller.prefix)

    return router


def _channel_fields(view: ChannelView) -> dict[str, Any]:
    channel, letter = view.channel, view.last_failed
    return {
        "channel_id": channel.channel_id,
        "name": channel.name,
        "kind": channel.means.value,
        "target": channel.shown,
        "rules": [rule.value for rule in channel.rules],
        "endpoint_ids": list(channel.endpoint_ids),
        "recoveries": channel.recoveries,
        "state": "active" if view.endpoint.state == "active" else "disabled",
        "failures": view.circuit.failures,
        "last_error": None if letter is None else f"{letter.code}: {letter.reason}",
        "last_failed_at": None if letter is None else iso(letter.settled_at),
        "created_at": to_iso(channel.created_at),
    }
