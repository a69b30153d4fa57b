"""Channels: their form, their endpoints in the reserved organization, and how they are doing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from msgspec.structs import replace

from doorstep.clock import DAY, SECOND, Clock, Instant
from doorstep.engine.accept import Accepter, Draft, new_correlation_id
from doorstep.engine.directory import RACES_MAX, Directory
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.alert import OPERATIONS_ORG, Channel, ChannelKind, ChannelTest, ChannelTests, Rule
from doorstep.model.attempt import Code
from doorstep.model.circuit import Circuit
from doorstep.model.delivery import DEAD_STATES, Delivery, DeliveryState
from doorstep.model.endpoint import Endpoint, EndpointState, RetryPolicy
from doorstep.model.listing import DeadLetterFilter, RetryQueueFilter
from doorstep.model.org import Org
from doorstep.model.record import Record, uuid7
from doorstep.model.rollup import Figures, Span
from doorstep.operations.alert_evaluator import MESSAGE
from doorstep.operations.endpoint_rules import EndpointForm, EndpointRules, new_endpoint
from doorstep.operations.endpoints import EndpointService, check_living
from doorstep.operations.notifiers import APPRISE_HANDLER, EMAIL_HANDLER, OWNER, TARGET, TIMEOUT_SECONDS
from doorstep.policy.alert_messages import payload_for, words_of_test
from doorstep.policy.alerts import check_pace, remembered
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable
from doorstep.transports.apprise import is_installed
from doorstep.transports.apprise_child import LOCAL_SCHEMES

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
            return new_endpoint(described, self._endpoint_rules, endpoint_id=uuid7(now), org_id=OPERATIONS_ORG, now=now)
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

    def _line(self, channel: Channel, actor: str, action: str, reason: str = "") -> AuditEntry:
        return AuditEntry(
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


_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"(?=[^@]{{1,64}}@)(?=.{{1,254}}$){_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})*")
"""As RFC 5321 has it, without quoted names, and without addresses instead of domains."""
_SEVERAL = re.compile(r"\s|[,;][A-Za-z0-9]+://")
"""Where Apprise would begin another URL."""
_ADDRESSES_MAX = 20
_NAME_CHARACTERS_MAX = 100
_URL_CHARACTERS_MAX = 2_000
_POLICY = RetryPolicy((10.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0), name="alerts")
_PACES = {
    ChannelKind.WEBHOOK: (8, 50.0),
    ChannelKind.SLACK: (1, 1.0),
    ChannelKind.EMAIL: (2, 5.0),
    ChannelKind.APPRISE: (1, 1.0),
}
"""How many messages at once, and how many a second: what chats and mail servers put up with, Slack says one a second."""
_NO_APPRISE = 'Apprise is not installed here; the operator adds it with pip install "doorstep[apprise]"'
_NO_MAIL = "e-mail needs a mail server; the operator sets it with DOORSTEP_SMTP_URL"


class ChannelForm(Record, frozen=True, kw_only=True):
    name: str
    kind: ChannelKind
    target: str
    """A URL; for e-mail, addresses with commas between them."""
    rules: tuple[Rule, ...] = ()
    endpoint_ids: tuple[UUID, ...] = ()
    recoveries: bool = True


def check(form: ChannelForm, *, has_mail: bool) -> None:
    """Refuse what cannot work, naming the field. A URL is judged when its endpoint is made."""
    if not 1 <= len(form.name) <= _NAME_CHARACTERS_MAX:
        raise InvalidInput("name", f"must be 1 to {_NAME_CHARACTERS_MAX} characters, got {len(form.name)}")
    check_storable("name", form.name)
    if form.kind is ChannelKind.EMAIL:
        _check_mail(form.target, has_mail)
    if form.kind is ChannelKind.APPRISE:
        _check_apprise(form.target)


def endpoint_form(form: ChannelForm, owner: UUID, timeout_seconds: float) -> EndpointForm:
    """Where a message goes that is no HTTP is sealed with the endpoint, as its headers, and whose it is."""
    concurrency_max, rate_per_second = _PACES[form.kind]
    common = EndpointForm(
        name=form.name,
        event_types=(MESSAGE,),
        policy=_POLICY,
        timeout_seconds=timeout_seconds,
        concurrency_max=concurrency_max,
        rate_per_second=rate_per_second,
    )
    match form.kind:
        case ChannelKind.EMAIL:
            return replace(common, handler=EMAIL_HANDLER, headers=_sealed(owner, ",".join(_addresses(form.target))))
        case ChannelKind.APPRISE:
            return replace(common, handler=APPRISE_HANDLER, headers=_sealed(owner, form.target))
    return replace(common, url=form.target)


def _sealed(owner: UUID, target: str) -> dict[str, str]:
    return {TARGET: target, OWNER: str(owner)}


def shown(form: ChannelForm) -> str:
    """A Slack webhook's path and an Apprise URL are credentials: of those only the beginning is shown."""
    match form.kind:
        case ChannelKind.EMAIL:
            return ", ".join(_addresses(form.target))
        case ChannelKind.WEBHOOK:
            return form.target.partition("?")[0]
        case ChannelKind.SLACK:
            parts = urlsplit(form.target)
            return f"{parts.scheme}://{parts.hostname}/…"
    return f"{form.target.partition('://')[0]}://…"


def addresses_of(channel: Channel) -> int:
    """How many e-mail addresses a message to it goes to."""
    return len(_addresses(channel.shown)) if channel.means is ChannelKind.EMAIL else 0


def _check_mail(target: str, has_mail: bool) -> None:
    if not has_mail:
        raise InvalidInput("kind", _NO_MAIL)
    addresses = _addresses(target)
    wrong = next((one for one in addresses if not _ADDRESS.fullmatch(one)), None)
    if wrong is not None or not 1 <= len(addresses) <= _ADDRESSES_MAX:
        seen = len(addresses) if wrong is None else repr(wrong[:100])
        raise InvalidInput("target", f"must be 1 to {_ADDRESSES_MAX} e-mail addresses, got {seen}")


def _check_apprise(target: str) -> None:
    if not is_installed():
        raise InvalidInput("kind", _NO_APPRISE)
    if "://" not in target or not target.isprintable() or not target.isascii() or len(target) > _URL_CHARACTERS_MAX:
        raise InvalidInput("target", "must be a URL that Apprise knows, such as mailtos://… or tgram://…")
    if _SEVERAL.search(target):
        raise InvalidInput("target", "must be one URL, without spaces; make a channel for each receiver")
    if (scheme := target.partition("://")[0].lower()) in LOCAL_SCHEMES:
        raise InvalidInput(
            "target", f"must lead somewhere over the network; {scheme}:// is for the server's own machine"
        )


def _addresses(target: str) -> list[str]:
    """Each once, or it would get the mail twice."""
    return list(dict.fromkeys(one.strip() for one in target.split(",") if one.strip()))


T = TypeVar("T")
U = TypeVar("U")

_LOOKED_BACK = ((Span.MINUTE, 2 * DAY), (Span.HOUR, 90 * DAY))
"""How exactly it is known when a message last arrived, and for how long."""
_EXAMINED_MAX = 20
_AT_ONCE_MAX = 4
CameOfTest = Literal["waiting", "delivered", "failed"]
_NO_FAULT_OF_IT = (Code.SKIPPED, Code.ENDPOINT_DELETED)


class ChannelView(NamedTuple):
    """A channel with how it fares."""

    channel: Channel
    endpoint: Endpoint
    circuit: Circuit
    last_failed: Delivery | None
    """The message that failed last: it is given up, or is tried again."""
    last_delivered_at: Instant | None
    """To the minute, later to the hour; of a test to the microsecond."""
    last_test: Delivery | None
    """The newest test; None too while it is being accepted, and once it has been cleaned away."""

    @property
    def came_of_test(self) -> CameOfTest | None:
        """What came of it."""
        if self.last_test is None:
            return None
        if self.last_test.state is DeliveryState.DELIVERED:
            return "delivered"
        return "failed" if self.last_test.state in DEAD_STATES else "waiting"


class ChannelReader:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def views(self, org_id: UUID) -> list[ChannelView]:
        """In the order of their creation."""
        return await self._views(*await self.channels_and_tests(org_id))

    async def view(self, org_id: UUID, channel_id: UUID) -> ChannelView:
        channels, tests = await self.channels_and_tests(org_id)
        return (await self._views([the_one(channels, channel_id)], tests))[0]

    async def channels(self, org_id: UUID) -> list[Channel]:
        return (await self.channels_and_tests(org_id))[0]

    async def channel(self, org_id: UUID, channel_id: UUID) -> Channel:
        return the_one(await self.channels(org_id), channel_id)

    async def channels_and_tests(self, org_id: UUID) -> tuple[list[Channel], ChannelTests]:
        """And what is remembered of their tests; version 0 where there have been none."""
        arranged = await self._store.arrangements(org_id)
        tests = next((one for one in arranged if isinstance(one, ChannelTests)), ChannelTests(org_id=org_id))
        return [one for one in arranged if isinstance(one, Channel)], tests

    async def _views(self, channels: Sequence[Channel], tests: ChannelTests) -> list[ChannelView]:
        """What can be asked for all of them together is."""
        ids = [one.channel_id for one in channels]
        endpoints = {one.endpoint_id: one for one in await self._store.these_endpoints(OPERATIONS_ORG, ids)}
        circuits = await self._store.circuits(OPERATIONS_ORG, ids)
        arrived = await self._last_delivered_at(ids)
        tested = await _of_each(ids, lambda one: self._message(tests.last_of(one)))
        levels = await self._store.levels(OPERATIONS_ORG, ids)
        failed = await _of_each(ids, lambda one: self._last_failed(one, levels[one]))
        return [
            ChannelView(
                channel=one,
                endpoint=endpoints[key],
                circuit=circuits.get(key) or Circuit(endpoint_id=key),
                last_failed=failure,
                last_delivered_at=_later(_arrived_at(test), arrived.get(key)),
                last_test=test,
            )
            for one, key, failure, test in zip(channels, ids, failed, tested, strict=True)
        ]

    async def _last_failed(self, channel_id: UUID, now: Figures) -> Delivery | None:
        """Most channels have nothing that failed, and are not asked about."""
        found: list[Delivery] = []
        if now.now_dead:
            wanted = DeadLetterFilter(endpoint_id=channel_id)
            letters = await self._store.dead_letters(OPERATIONS_ORG, wanted, limit=_EXAMINED_MAX)
            found += (one for one in letters.items if one.code not in _NO_FAULT_OF_IT)
        if now.now_open:
            waiting = RetryQueueFilter(endpoint_id=channel_id)
            found += (await self._store.retry_queue(OPERATIONS_ORG, waiting, limit=_EXAMINED_MAX)).items
        return max(found, key=failed_at, default=None)

    async def _last_delivered_at(self, channel_ids: Sequence[UUID]) -> dict[UUID, Instant]:
        now, found = self._clock.now(), dict[UUID, Instant]()
        for span, back in _LOOKED_BACK:
            left = [one for one in channel_ids if one not in found]
            trends = await self._store.trends(OPERATIONS_ORG, left, span, now - back, now + SECOND)
            arrived = {key: [point.at for point in trend if point.figures.succeeded] for key, trend in trends.items()}
            found |= {key: at[-1] for key, at in arrived.items() if at}
        return found

    async def _message(self, test: ChannelTest | None) -> Delivery | None:
        if test is None:
            return None
        messages = await self._store.deliveries(OPERATIONS_ORG, test.message_id)
        return messages[0] if messages else None


def the_one(channels: Sequence[Channel], channel_id: UUID) -> Channel:
    """NotFound if it is not among them."""
    found = next((one for one in channels if one.channel_id == channel_id), None)
    if found is None:
        raise NotFound(f"no channel {channel_id}")
    return found


async def _of_each(these: Sequence[T], ask: Callable[[T], Awaitable[U]]) -> list[U]:
    """Together, but not all at once: an organization with many channels must not keep others from the store."""
    places = asyncio.Semaphore(_AT_ONCE_MAX)

    async def answer(one: T) -> U:
        async with places:
            return await ask(one)

    return await asyncio.gather(*map(answer, these))


def failed_at(delivery: Delivery) -> Instant:
    """When it was given up, or last tried in vain."""
    return delivery.settled_at or delivery.last_attempt_at or 0


def _arrived_at(test: Delivery | None) -> Instant | None:
    return test.settled_at if test is not None and test.state is DeliveryState.DELIVERED else None


def _later(one: Instant | None, other: Instant | None) -> Instant | None:
    return max((at for at in (one, other) if at is not None), default=None)
