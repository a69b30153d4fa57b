"""Beside the path: channels are made, tested, resumed and removed. Each is an endpoint of the reserved organization."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, Clock
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.act import AuditLine
from doorstep.model.channel import OPERATIONS_ORG, Channel, ChannelTest
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.ids import uuid7
from doorstep.model.org import Org
from doorstep.path.accept import Accepter, Draft
from doorstep.path.alert_book import MESSAGE
from doorstep.path.change import RACES_MAX
from doorstep.path.channel_form import ChannelForm, addresses_of, check, endpoint_form, shown
from doorstep.path.channel_views import ChannelReader, the_one
from doorstep.path.directory import Directory
from doorstep.path.drafting import new_correlation_id
from doorstep.path.enrol import EndpointRules, enrol
from doorstep.path.messengers import TIMEOUT_SECONDS
from doorstep.path.registrar import EndpointService
from doorstep.path.roster import check_living
from doorstep.policy.alert_words import payload_for, words_of_test
from doorstep.policy.testing_pace import check_pace, remembered
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable

ARRANGEMENTS_MAX = 1_000
"""Of one organization: rules, channels and silences together, and what is remembered of its tests as one more."""
CHANNELS_MAX = 50
"""Of one organization; a few more where several are made at the same moment."""
_STALE = DAY
"""What waited longer for a channel to be resumed is not told any more: the alerts are still in their list."""


class ChannelService:
    def __init__(
        self,
        store: Store,
        directory: Directory,
        clock: Clock,
        endpoints: EndpointService,
        accepter: Accepter,
        endpoint_rules: EndpointRules,
        console: str,
        *,
        has_mail: bool,
    ) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._endpoints = endpoints
        self._accepter = accepter
        self._endpoint_rules = endpoint_rules
        self._console = console
        self._has_mail = has_mail
        self.reading = ChannelReader(store, clock)

    # -- making and removing -------------------------------------------------------------------------------

    async def create(self, form: ChannelForm, org_id: UUID, actor: str) -> tuple[Channel, str]:
        """A new channel, and what a webhook's receiver verifies with."""
        check(form, has_mail=self._has_mail)
        await check_living(self._store, org_id, form.endpoint_ids, "endpoint_ids")
        await self._check_room(org_id)
        await self._prepare_org()
        endpoint, verifier = self._enrolled(form, org_id)
        channel = Channel(
            channel_id=endpoint.endpoint_id,
            org_id=org_id,
            name=form.name,
            means=form.kind,
            shown=shown(form),
            rules=form.rules,
            endpoint_ids=form.endpoint_ids,
            recoveries=form.recoveries,
            created_at=endpoint.created_at,
        )
        line = self._line(channel, actor, "channel.create")
        created = await self._store.put_channel(channel, endpoint, line, ARRANGEMENTS_MAX)
        assert created, "nobody else has its id"
        await self._directory.reload()
        return replace(channel, version=1), verifier

    def _enrolled(self, form: ChannelForm, owner: UUID) -> tuple[Endpoint, str]:
        """To its owner, the endpoint's URL is the channel's target."""
        now = self._clock.now()
        described = endpoint_form(form, owner, min(TIMEOUT_SECONDS, self._endpoint_rules.timeout_seconds_max))
        try:
            return enrol(described, self._endpoint_rules, endpoint_id=uuid7(now), org_id=OPERATIONS_ORG, now=now)
        except InvalidInput as error:
            raise InvalidInput("target" if error.field in ("url", "headers") else error.field, error.message) from None

    async def delete(self, org_id: UUID, channel_id: UUID, actor: str, reason: str = "") -> None:
        """Nothing is sent there any more; what still waits is dropped, by whoever would have sent it."""
        check_storable("reason", reason)
        for _ in range(RACES_MAX):
            channel = await self.reading.channel(org_id, channel_id)
            endpoint = await self._store.endpoint(OPERATIONS_ORG, channel_id)
            gone = replace(
                endpoint,
                state=EndpointState.DELETED,
                state_reason=f"deleted by {actor}",
                updated_at=self._clock.now(),
            )
            if await self._store.remove_channel(channel, gone, self._line(channel, actor, "channel.delete", reason)):
                await self._directory.reload()
                return
        raise _busy(channel_id)

    async def _check_room(self, org_id: UUID) -> None:
        if len(await self.reading.channels(org_id)) >= CHANNELS_MAX:
            raise Conflict(f"an organization has at most {CHANNELS_MAX} channels; delete some first")

    async def _prepare_org(self) -> None:
        """The reserved organization comes to be with the first channel."""
        if self._directory.org(OPERATIONS_ORG) is None:
            await self._directory.reload()
        if self._directory.org(OPERATIONS_ORG) is None:
            await self._store.put_org(Org(org_id=OPERATIONS_ORG, name="doorstep", created_at=self._clock.now()))
            await self._directory.reload()

    # -- testing and resuming ------------------------------------------------------------------------------

    async def test(self, org_id: UUID, channel_id: UUID, actor: str) -> ChannelTest:
        """Send a message that says it is a test; the channel shows whether it arrived. Overloaded if that is too often.

        It is counted before it is sent: whoever dies in between has one test less.
        """
        for _ in range(RACES_MAX):
            channels, kept = await self.reading.channels_and_tests(org_id)
            channel, now = the_one(channels, channel_id), self._clock.now()
            test = ChannelTest(channel_id, uuid7(now), now, addresses_of(channel))
            check_pace(kept.tests, test)
            tested = replace(kept, tests=remembered(kept.tests, test, [one.channel_id for one in channels]))
            line = self._line(channel, actor, "channel.test")
            if await self._store.put_arrangement(tested, kept.version, line, ARRANGEMENTS_MAX + 1):
                await self._send(channel, test)
                return test
        raise _busy(channel_id)

    async def _send(self, channel: Channel, test: ChannelTest) -> None:
        words = words_of_test(channel.name, test.at, self._console)
        draft = Draft(
            org_id=OPERATIONS_ORG,
            event_type=MESSAGE,
            payload=payload_for(channel.means, words),
            correlation_id=new_correlation_id(),
            endpoint_ids=(channel.channel_id,),
            event_id=test.message_id,
        )
        await self._accepter.accept([draft])

    async def resume(self, org_id: UUID, channel_id: UUID, actor: str) -> None:
        """Send there again, after it was disabled: what waits, but for what is stale.

        It is audited before it is done, for it takes several steps: so whoever dies in between has done nothing that is
        not in the log.
        """
        channel = await self.reading.channel(org_id, channel_id)
        stale = self._clock.now() - _STALE
        await self._store.add_audit(self._line(channel, actor, "channel.resume"))
        await self._endpoints.resume(OPERATIONS_ORG, channel_id, actor, skip_older_than=stale)

    def _line(self, channel: Channel, actor: str, action: str, reason: str = "") -> AuditLine:
        return AuditLine(
            at=self._clock.now(),
            org_id=channel.org_id,
            actor=actor,
            action=action,
            subjects=(str(channel.channel_id),),
            result=channel.means,
            reason=reason,
        )


def _busy(channel_id: UUID) -> Conflict:
    return Conflict(f"channel {channel_id} is being changed by others all the time; try again")
