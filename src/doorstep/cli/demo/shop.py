"""The systems around the shop of the demo: one of each kind that people meet, with policies short enough to watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from doorstep.app import Doorstep
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.cli.listen import Behaviour
from doorstep.clock import Instant, seconds
from doorstep.model.alert import ChannelKind
from doorstep.model.endpoint import CircuitRules, RetryPolicy
from doorstep.model.org import Role
from doorstep.operations.channels import ChannelForm

_HARDLY_EVER = CircuitRules(failures_max=1_000)


class Spell(NamedTuple):
    """A bad time that comes again and again."""

    every_seconds: float
    lasts_seconds: float
    behaviour: Behaviour

    def is_on(self, now: Instant) -> bool:
        return now % seconds(self.every_seconds) < seconds(self.lasts_seconds)


class Sample(NamedTuple):
    """One endpoint, and how its receiver behaves."""

    name: str
    about: str
    """How it fares, in a word or two."""
    event_types: tuple[str, ...]
    behaviour: Behaviour | None
    """None: nothing listens there."""
    policy: RetryPolicy
    circuit: CircuitRules = _HARDLY_EVER
    spell: Spell | None = None

    @property
    def path(self) -> str:
        return f"/{self.name}"

    def fields(self, url: str) -> dict[str, Any]:
        """What an endpoint is created or changed with."""
        return {
            "name": self.name,
            "url": url,
            "event_types": self.event_types,
            "policy": self.policy,
            "circuit": self.circuit,
        }


STOREFRONT = Sample("storefront", "healthy", ("order.*", "customer.*"), Behaviour(), RetryPolicy((2, 10, 60)))
CRM = Sample(
    "crm",
    "flaky",
    ("customer.*", "order.paid"),
    Behaviour(503, fail_share=0.1, body=b'{"error": "try again later"}'),
    RetryPolicy((3, 6, 12, 24)),
    CircuitRules(failures_max=5, open_seconds=10),
    # Its circuit opens, what comes meanwhile is held, and all of it arrives when the spell is over.
    Spell(240, 45, Behaviour(503, fail_share=1.0, body=b'{"error": "down for maintenance"}')),
)
WAREHOUSE = Sample("warehouse", "slow", ("order.shipped",), Behaviour(slow_seconds=1.8), RetryPolicy((5, 15)))
# While its circuit is open, one delivery goes through as a probe every few seconds: with a single retry each, that
# makes a dead letter of it.
ERP = Sample("erp", "down", ("stock.*",), None, RetryPolicy((2,)), CircuitRules(failures_max=5, open_seconds=8))
ACCOUNTING = Sample(
    "accounting",
    "refuses some",
    ("invoice.*",),
    Behaviour(422, fail_share=0.3, body=b'{"error": "vat_number is missing"}'),
    RetryPolicy((5, 30)),
)
MARKETPLACE = Sample(
    "marketplace",
    "does not know our key",
    ("listing.*",),
    Behaviour(401, fail_share=1.0, body=b'{"error": "the token has expired"}'),
    RetryPolicy((5, 30)),
)
SAMPLES = (STOREFRONT, CRM, WAREHOUSE, ERP, ACCOUNTING, MARKETPLACE)

ALERTS_PATH = "/alerts"
_NOT_FOUND = Behaviour(404, fail_share=1.0)


def behaviour_at(path: str, now: Instant) -> Behaviour:
    """How whatever has this path behaves at this moment; a path that nobody has is not found."""
    if path.startswith(ALERTS_PATH):
        return Behaviour()
    sample = next((one for one in SAMPLES if one.path == path), None)
    if sample is None or sample.behaviour is None:
        return _NOT_FOUND
    return sample.spell.behaviour if sample.spell and sample.spell.is_on(now) else sample.behaviour


_ADMIN, _OPERATOR = "lena", "marco"
_KEYS = {
    _ADMIN: Role.ADMIN,
    _OPERATOR: Role.OPERATOR,
    "checkout": Role.PUBLISHER,
    "bookkeeping": Role.VIEWER,
}
_CHANNELS = {"on-call": ChannelKind.WEBHOOK, "#shop": ChannelKind.SLACK}


class Staff(NamedTuple):
    """Those who do something, as the audit log knows them: by the visible beginnings of their keys."""

    admin: str
    operator: str


async def furnish(doorstep: Doorstep, url_of: Callable[[Sample], str], receivers: str) -> None:
    """What an earlier demo left is led to where the receivers are now."""
    admin = (await staff_of(doorstep)).admin
    for sample in SAMPLES:
        await _endpoint(doorstep, sample, url_of(sample), admin)
    await _channels(doorstep, receivers, admin)


async def staff_of(doorstep: Doorstep) -> Staff:
    """Whoever has no key that is good gets one."""
    now, known = doorstep.clock.now(), await doorstep.components.keys.keys(DEFAULT_ORG)
    prefixes = {key.name: key.prefix for key in known if key.is_valid(now)}
    for name, role in _KEYS.items():
        if name not in prefixes:
            record, _ = await doorstep.components.keys.create(DEFAULT_ORG, name, role, prefixes.get(_ADMIN, "program"))
            prefixes[name] = record.prefix
    return Staff(prefixes[_ADMIN], prefixes[_OPERATOR])


async def _endpoint(doorstep: Doorstep, sample: Sample, url: str, admin: str) -> None:
    fields = sample.fields(url)
    for endpoint in await doorstep.endpoints():
        if endpoint.name == sample.name:
            await doorstep.components.endpoints.update(DEFAULT_ORG, endpoint.endpoint_id, fields, admin)
            return
    await doorstep.create_endpoint(**fields, actor=admin)


async def _channels(doorstep: Doorstep, receivers: str, admin: str) -> None:
    """Where a channel leads cannot be changed: an old one makes room for a new one."""
    desk = doorstep.components.channels
    for channel in await desk.reading.channels(DEFAULT_ORG):
        if channel.name in _CHANNELS:
            await desk.delete(DEFAULT_ORG, channel.channel_id, admin)
    for name, kind in _CHANNELS.items():
        target = f"{receivers}{ALERTS_PATH}/{kind}"
        await desk.create(ChannelForm(name=name, kind=kind, target=target), DEFAULT_ORG, admin)
