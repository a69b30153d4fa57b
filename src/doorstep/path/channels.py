"""Beside the path: channels are made, tested and removed. Each is an endpoint of the reserved organization."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from doorstep.clock import Clock
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.act import AuditLine
from doorstep.model.channel import OPERATIONS_ORG, Channel
from doorstep.model.circuit import Circuit
from doorstep.model.delivery import Delivery
from doorstep.model.endpoint import Endpoint
from doorstep.model.listing import Letters
from doorstep.model.org import Org
from doorstep.model.submission import Receipt
from doorstep.path.accept import Accepter, Draft
from doorstep.path.alert_book import MESSAGE
from doorstep.path.channel_form import ChannelForm, check, endpoint_form, shown
from doorstep.path.directory import Directory
from doorstep.path.drafting import new_correlation_id
from doorstep.path.messengers import TIMEOUT_SECONDS
from doorstep.path.operate import Operator
from doorstep.path.registrar import Registrar
from doorstep.policy.alert_words import payload_for, words_of_test
from doorstep.stores.store import Store

ARRANGEMENTS_MAX = 1_000
"""Of one organization: rules, channels and silences together."""
_CHANNELS_MAX = 50


class ChannelView(NamedTuple):
    """A channel with how it fares."""

    channel: Channel
    endpoint: Endpoint
    circuit: Circuit
    last_failed: Delivery | None
    """The newest message that could not be delivered."""


class ChannelDesk:
    def __init__(
        self,
        store: Store,
        directory: Directory,
        clock: Clock,
        registrar: Registrar,
        operator: Operator,
        accepter: Accepter,
        console: str,
        *,
        has_mail: bool,
        timeout_seconds_max: float,
    ) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._registrar = registrar
        self._operator = operator
        self._accepter = accepter
        self._console = console
        self._has_mail = has_mail
        self._timeout_seconds = min(TIMEOUT_SECONDS, timeout_seconds_max)

    # -- writing -------------------------------------------------------------------------------------------

    async def create(self, form: ChannelForm, org_id: UUID, actor: str) -> tuple[Channel, str]:
        """A new channel, and what a webhook's receiver verifies with. Whoever dies in between leaves an endpoint that
        nothing is sent to."""
        check(form, has_mail=self._has_mail)
        await self._check_room(org_id)
        await self._prepare_org()
        endpoint, verifier = await self._enrol(form, actor)
        channel = Channel(
            channel_id=endpoint.endpoint_id,
            org_id=org_id,
            name=form.name,
            means=form.kind,
            shown=shown(form),
            rules=form.rules,
            endpoint_ids=form.endpoint_ids,
            recoveries=form.recoveries,
            created_at=self._clock.now(),
            version=1,
        )
        await self._store.put_arrangement(channel, 0, self._line(channel, actor, "channel.create"), ARRANGEMENTS_MAX)
        return channel, verifier

    async def _enrol(self, form: ChannelForm, actor: str) -> tuple[Endpoint, str]:
        try:
            return await self._registrar.create(endpoint_form(form, self._timeout_seconds), OPERATIONS_ORG, actor)
        except InvalidInput as error:  # to its owner, the endpoint's URL is the channel's target
            raise InvalidInput("target" if error.field in ("url", "headers") else error.field, error.message) from None

    async def delete(self, org_id: UUID, channel_id: UUID, actor: str) -> None:
        channel = await self.channel(org_id, channel_id)
        await self._store.remove_arrangement(org_id, channel_id, self._line(channel, actor, "channel.delete"))
        await self._operator.delete(OPERATIONS_ORG, channel_id, actor)

    async def test(self, org_id: UUID, channel_id: UUID, actor: str) -> Receipt:
        """Send a message that says it is a test; the channel shows whether it arrived."""
        channel = await self.channel(org_id, channel_id)
        now = self._clock.now()
        words = words_of_test(channel.name, now, self._console)
        draft = Draft(
            org_id=OPERATIONS_ORG,
            event_type=MESSAGE,
            payload=payload_for(channel.means, words),
            correlation_id=new_correlation_id(),
            endpoint_ids=(channel_id,),
        )
        (receipt,) = await self._accepter.accept([draft])
        await self._store.add_audit(self._line(channel, actor, "channel.test"))
        return receipt

    # -- reading -------------------------------------------------------------------------------------------

    async def channels(self, org_id: UUID) -> list[ChannelView]:
        return [await self._view(one) for one in await self._channels(org_id)]

    async def view(self, org_id: UUID, channel_id: UUID) -> ChannelView:
        return await self._view(await self.channel(org_id, channel_id))

    async def channel(self, org_id: UUID, channel_id: UUID) -> Channel:
        found = next((one for one in await self._channels(org_id) if one.channel_id == channel_id), None)
        if found is None:
            raise NotFound(f"no channel {channel_id}")
        return found

    async def _channels(self, org_id: UUID) -> list[Channel]:
        return [one for one in await self._store.arrangements(org_id) if isinstance(one, Channel)]

    async def _view(self, channel: Channel) -> ChannelView:
        letters = await self._store.dead_letters(OPERATIONS_ORG, Letters(endpoint_id=channel.channel_id), None, 1)
        return ChannelView(
            channel,
            await self._store.endpoint(OPERATIONS_ORG, channel.channel_id),
            await self._store.circuit(channel.channel_id),
            letters.items[0] if letters.items else None,
        )

    async def _check_room(self, org_id: UUID) -> None:
        if len(await self._channels(org_id)) >= _CHANNELS_MAX:
            raise Conflict(f"an organization has at most {_CHANNELS_MAX} channels; delete some first")

    async def _prepare_org(self) -> None:
        """The reserved organization comes to be with the first channel."""
        if self._directory.org(OPERATIONS_ORG) is None:
            await self._directory.reload()
        if self._directory.org(OPERATIONS_ORG) is None:
            await self._store.put_org(Org(org_id=OPERATIONS_ORG, name="doorstep", created_at=self._clock.now()))
            await self._directory.reload()

    def _line(self, channel: Channel, actor: str, action: str) -> AuditLine:
        return AuditLine(
            at=self._clock.now(),
            org_id=channel.org_id,
            actor=actor,
            action=action,
            subjects=(str(channel.channel_id),),
            result=channel.means,
        )
