"""Beside the path: endpoints are created, updated, paused, resumed, deleted, and given new secrets; audited."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.engine import facts
from doorstep.engine.directory import RACES_MAX, Directory, change_endpoint, create_endpoint, living, put_circuit
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.attempt import Code
from doorstep.model.endpoint import Endpoint, EndpointState, RetryPolicy, SigningSecret
from doorstep.model.record import uuid7
from doorstep.operations.endpoint_rules import (
    EndpointForm,
    EndpointRules,
    check,
    check_signing,
    new_endpoint,
    new_signing,
    policy_from,
    updated_endpoint,
)
from doorstep.policy.circuit import after_success
from doorstep.policy.classification import DELETED_WHILE_WAITING
from doorstep.policy.retry import BUILT_IN
from doorstep.policy.routing import subscribes
from doorstep.stores.store import Store
from doorstep.stores.text import check_storable
from doorstep.telemetry.facts import Telemetry

DRAIN_MIN, DRAIN_MAX = 0.001, 100_000.0
OVERLAP_SECONDS = 86_400.0
_OVERLAP_SECONDS_MAX = 30 * 86_400.0
_DEAD_LETTER_BATCH = 1_000
_SECRETS_MAX = 5
"""Each of them adds a signature to every request. One more is refused, not the oldest dropped: its receiver was told
until when it signs."""


class Rotated(NamedTuple):
    endpoint: Endpoint
    verifier: str
    """What the receiver verifies with from now on: the new shared secret, or the new public key."""
    old_expires_at: Instant | None
    """Until when the old secret signs too; None where it does no longer."""


class EndpointService:
    """Every change is one transaction with its audit line. `wake` is called when deliveries may have become due by it."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        clock: Clock,
        rules: EndpointRules,
        telemetry: Telemetry,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._rules = rules
        self._telemetry = telemetry
        self._wake = wake

    async def create(self, form: EndpointForm, org_id: UUID, actor: str) -> tuple[Endpoint, str]:
        """A new endpoint, and what its receiver verifies signatures with. Conflict where there are too many already."""
        now = self._clock.now()
        endpoint, verifier = new_endpoint(form, self._rules, endpoint_id=uuid7(now), org_id=org_id, now=now)
        created = await create_endpoint(self._store, endpoint, actor, self._rules.endpoints_max)
        await self._directory.reload()
        return created, verifier

    async def update(
        self, org_id: UUID, endpoint_id: UUID, changes: Mapping[str, Any], actor: str, version: int | None = None
    ) -> Endpoint:
        """Change some fields of its form. Conflict if it is no longer the version that the change was made for."""
        now = self._clock.now()

        def changed(endpoint: Endpoint) -> Endpoint:
            _check_version(living(endpoint), version)
            cleaned = msgspec.structs.replace(endpoint, secrets=unexpired(endpoint.secrets, now))
            return updated_endpoint(cleaned, changes, self._rules)

        named = ", ".join(sorted(changes))
        return await self._write(org_id, endpoint_id, changed, actor, "endpoint.change", named)

    async def rotate(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        actor: str,
        overlap_seconds: float = OVERLAP_SECONDS,
        signing: str | None = None,
    ) -> Rotated:
        """A new secret signs from now on; the old one beside it until the overlap ends.

        Conflict where too many would sign then; without an overlap there is always room.
        """
        if not 0 <= overlap_seconds <= _OVERLAP_SECONDS_MAX:
            raise InvalidInput(
                "overlap_seconds", f"must be from 0 to {_OVERLAP_SECONDS_MAX:.15g}, got {overlap_seconds:.15g}"
            )
        if signing is not None:
            check_signing(signing)
        now = self._clock.now()
        until = now + seconds(overlap_seconds) if overlap_seconds else None
        scheme = signing or _scheme(await self._store.endpoint(org_id, endpoint_id))
        secret, verifier = new_signing(endpoint_id, scheme, self._rules.sealer)

        def rotated(endpoint: Endpoint) -> Endpoint:
            kept = outgoing(living(endpoint).secrets, now, until)
            _check_room(kept)
            return msgspec.structs.replace(endpoint, secrets=(secret, *kept))

        endpoint = await self._write(org_id, endpoint_id, rotated, actor, "endpoint.rotate_secret", "")
        return Rotated(endpoint, verifier, until)

    async def pause(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> Endpoint:
        """Hold an endpoint's deliveries until it is resumed."""
        check_storable("reason", reason)

        def paused(endpoint: Endpoint) -> Endpoint:
            return msgspec.structs.replace(living(endpoint), state=EndpointState.PAUSED, state_reason=reason)

        return await self._write(org_id, endpoint_id, paused, actor, "endpoint.pause", reason)

    async def resume(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        actor: str,
        *,
        drain_per_second: float | None = None,
        skip_older_than: Instant | None = None,
        reason: str = "",
    ) -> Endpoint:
        """Enable a paused or disabled endpoint: drain what waits, drain it at a rate, or skip what is too old.

        What is skipped becomes dead letters, so that it can still be found; that may take a while. If meanwhile
        someone else paused, deleted or resumed the endpoint this is a Conflict: who asked did not know of it.
        """
        _check_drain(drain_per_second)
        check_storable("reason", reason)
        seen = living(await self._store.endpoint(org_id, endpoint_id))

        def resumed(endpoint: Endpoint) -> Endpoint:
            _check_unmoved(living(endpoint), seen)
            return msgspec.structs.replace(
                endpoint,
                state=EndpointState.ACTIVE,
                state_reason="",
                drain_per_second=drain_per_second,
                drain_before=None if drain_per_second is None else self._clock.now(),
            )

        if skip_older_than is not None:
            await self._skip(seen, skip_older_than, actor, reason)
        await self._forgive(seen)
        enabled = await self._write(org_id, endpoint_id, resumed, actor, "endpoint.resume", reason)
        self._wake()
        return enabled

    async def delete(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> None:
        """Delete an endpoint; what waits for it becomes dead letters that say so. The reason is for the audit."""
        check_storable("reason", reason)

        def deleted(endpoint: Endpoint) -> Endpoint:
            why = f"deleted by {actor}"
            return msgspec.structs.replace(living(endpoint), state=EndpointState.DELETED, state_reason=why)

        await self._write(org_id, endpoint_id, deleted, actor, "endpoint.delete", reason)
        await self._dead_letter_all(endpoint_id, Code.ENDPOINT_DELETED, DELETED_WHILE_WAITING)

    async def _write(
        self,
        org_id: UUID,
        endpoint_id: UUID,
        change: Callable[[Endpoint], Endpoint],
        actor: str,
        action: str,
        reason: str,
    ) -> Endpoint:
        written = await change_endpoint(
            self._store,
            org_id,
            endpoint_id,
            change,
            actor=actor,
            action=action,
            now=self._clock.now(),
            reason=reason,
        )
        assert written is not None, "a change always makes something of the endpoint, or raises"
        await self._directory.reload()
        return written

    async def _skip(self, endpoint: Endpoint, before: Instant, actor: str, reason: str) -> None:
        """Audited apart from the resumption that it belongs to: it has been done even if that comes to nothing."""
        why = f"Skipped on resume: accepted before {to_iso(before)}."
        count = await self._dead_letter_all(endpoint.endpoint_id, Code.SKIPPED, why, before)
        await self._store.add_audit(
            AuditEntry(
                at=self._clock.now(),
                org_id=endpoint.org_id,
                actor=actor,
                action="endpoint.skip",
                subjects=(str(endpoint.endpoint_id),),
                result=f"{count} skipped",
                reason=f"{why} {reason}".rstrip(),
            )
        )

    async def _forgive(self, endpoint: Endpoint) -> None:
        """Start with a closed circuit: days of failures counted before would disable it again at the first one."""
        for _ in range(RACES_MAX):
            now = self._clock.now()
            circuit = await self._store.circuit(endpoint.endpoint_id)
            closed = after_success(circuit, now)
            if closed == circuit or await put_circuit(
                self._store, self._telemetry, endpoint, circuit, closed, "resumed by an operator", now
            ):
                return
        raise Conflict(f"the circuit of endpoint {endpoint.endpoint_id} is changing all the time; try again")

    async def _dead_letter_all(self, endpoint_id: UUID, code: str, reason: str, before: Instant | None = None) -> int:
        count = 0
        while True:
            now = self._clock.now()
            buried = await self._store.bury(endpoint_id, code, reason, now, _DEAD_LETTER_BATCH, before)
            self._telemetry.emit_all(facts.moved(buried, now))
            count += len(buried.moves)
            if not buried.moves:  # fewer than a batch only means that some were claimed meanwhile
                return count


def outgoing(secrets: tuple[SigningSecret, ...], now: Instant, until: Instant | None) -> tuple[SigningSecret, ...]:
    """The secrets that go on signing beside a new one, newest first, none of them beyond `until`."""
    if until is None:
        return ()
    return tuple(
        msgspec.structs.replace(
            secret, expires_at=until if secret.expires_at is None else min(secret.expires_at, until)
        )
        for secret in unexpired(secrets, now)
    )


def unexpired(secrets: tuple[SigningSecret, ...], now: Instant) -> tuple[SigningSecret, ...]:
    return tuple(secret for secret in secrets if secret.expires_at is None or secret.expires_at > now)


def _check_room(kept: tuple[SigningSecret, ...]) -> None:
    """Refuse a new secret beside so many old ones, saying when the first of those ends."""
    if len(kept) >= _SECRETS_MAX:
        first_end = min(secret.expires_at for secret in kept if secret.expires_at is not None)
        raise Conflict(
            f"{_SECRETS_MAX} secrets sign already, the most there may be, until {to_iso(first_end)}; rotate again then, "
            "or with overlap_seconds 0, which ends all old ones at once"
        )


def _scheme(endpoint: Endpoint) -> str:
    current = endpoint.signing_secret
    return "v1" if current is None else current.scheme


def _check_version(endpoint: Endpoint, version: int | None) -> None:
    if version is not None and version != endpoint.version:
        raise Conflict(
            f"endpoint {endpoint.endpoint_id} is at version {endpoint.version}, got {version}; "
            "read it again and decide anew"
        )


def _check_drain(per_second: float | None) -> None:
    if per_second is not None and not DRAIN_MIN <= per_second <= DRAIN_MAX:
        raise InvalidInput("drain_per_second", f"must be from {DRAIN_MIN:g} to {DRAIN_MAX:g}, got {per_second:g}")


def _check_unmoved(endpoint: Endpoint, seen: Endpoint) -> None:
    if endpoint.state is not seen.state:
        raise Conflict(
            f"endpoint {endpoint.endpoint_id} was {seen.state} and became {endpoint.state} while it was being resumed; "
            "look at it and decide again"
        )


_ACTOR = "program"
_DIGEST_CHARS = 16
_FROM_THE_START = frozenset(
    {"name", "url", "handler", "event_types", "policy", "policy_by_event_type", "timeout_seconds", "concurrency_max"}
    | {"rate_per_second", "headers", "retry_on", "give_up_on", "code_map", "circuit", "envelope", "batch", "signing"}
)
"""The settings that version 0.1.0 wrote into the digest, used or not."""


class Declaration(NamedTuple):
    """An endpoint as the code of a program describes it; its name tells it from others of the organization."""

    form: EndpointForm
    org_id: UUID


async def declare(
    store: Store, directory: Directory, clock: Clock, rules: EndpointRules, declarations: list[Declaration]
) -> None:
    """Make the store's endpoints agree with the code.

    What operators did to them stays: a pause, a new secret, and any field, until the code says something else than when
    it was last written.
    """
    for one in declarations:
        await _declare(store, clock, rules, one)
    if declarations:
        await directory.reload()


async def _declare(store: Store, clock: Clock, rules: EndpointRules, declaration: Declaration) -> None:
    form, org_id = declaration
    generation = 0
    while True:
        endpoint_id = uuid5(org_id, f"{form.name}/{generation}")
        try:
            known = await store.endpoint(org_id, endpoint_id)
        except NotFound:
            endpoint, _ = new_endpoint(form, rules, endpoint_id=endpoint_id, org_id=org_id, now=clock.now())
            with contextlib.suppress(Conflict):  # another process was faster: look at what it made
                await create_endpoint(store, _marked(endpoint, form, rules), _ACTOR)
            continue
        if known.state is not EndpointState.DELETED:
            await _bring_up_to_date(store, clock, rules, known, form)
            return
        generation += 1  # someone deleted it, and the code wants it again: another endpoint, with its own history


async def _bring_up_to_date(
    store: Store, clock: Clock, rules: EndpointRules, known: Endpoint, form: EndpointForm
) -> None:
    wanted = {name: getattr(form, name) for name in EndpointForm.__struct_fields__ if name != "signing"}

    def changed(endpoint: Endpoint) -> Endpoint | None:
        if endpoint.declared == _digest(form, rules.standard):
            return None
        return _marked(updated_endpoint(endpoint, wanted, rules), form, rules)

    await change_endpoint(
        store, known.org_id, known.endpoint_id, changed, actor=_ACTOR, action="endpoint.declare", now=clock.now()
    )


def check_form(form: EndpointForm, timeout_seconds_max: float) -> None:
    """Refuse what cannot work, naming the field, as far as it can be told before the store is open."""
    check(form, timeout_seconds_max)
    _with_policies(form, BUILT_IN["standard"])


def _marked(endpoint: Endpoint, form: EndpointForm, rules: EndpointRules) -> Endpoint:
    return msgspec.structs.replace(endpoint, declared=_digest(form, rules.standard))


def _digest(form: EndpointForm, standard: RetryPolicy) -> str:
    """The same for the same declaration, in every process; another one if a policy that it names has changed.

    A setting that a later version added counts only where it is used: it must not make every declaration look changed.
    """
    said, usual = (msgspec.to_builtins(one) for one in (_with_policies(form, standard), EndpointForm(name="")))
    counted = {name: value for name, value in said.items() if name in _FROM_THE_START or value != usual[name]}
    content = msgspec.json.encode(counted, order="sorted")
    return hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]


def _with_policies(form: EndpointForm, standard: RetryPolicy) -> EndpointForm:
    return msgspec.structs.replace(
        form,
        policy=None if form.policy is None else policy_from(form.policy, standard),
        policy_by_event_type={
            pattern: policy_from(policy, standard) for pattern, policy in form.policy_by_event_type.items()
        },
    )


class EndpointNames:
    """The endpoints of one organization. Deleted ones have their names only where those were looked up."""

    def __init__(self, org_id: UUID, directory: Directory) -> None:
        self._org_id = org_id
        self._directory = directory
        self._departed: dict[UUID, str] = {}

    async def look_up(self, store: Store, endpoint_ids: Iterable[UUID | None]) -> None:
        """The names of those among them that were deleted."""
        for endpoint_id in {one for one in endpoint_ids if one is not None and not self.is_living(one)}:
            with suppress(NotFound):
                self._departed[endpoint_id] = (await store.endpoint(self._org_id, endpoint_id)).name

    def is_living(self, endpoint_id: UUID) -> bool:
        return self._directory.endpoint(endpoint_id) is not None

    def name(self, endpoint_id: UUID | None) -> str:
        if endpoint_id is None:
            return ""
        endpoint = self._directory.endpoint(endpoint_id)
        return endpoint.name if endpoint else self._departed.get(endpoint_id, "")

    def subscribers(self, event_type: str, about: UUID | None) -> tuple[UUID, ...]:
        """Who asked for operational events of this type. An endpoint is not told of its own troubles: that would only be
        one more that cannot be delivered."""
        routed = self._directory.routes.route(self._org_id, event_type)
        return tuple(one.endpoint_id for one in routed if one.endpoint_id != about and subscribes(one, event_type))


async def check_living(store: Store, org_id: UUID, endpoint_ids: Sequence[UUID], field: str) -> None:
    """Refuse to arrange anything about endpoints that are not there, or not any more; `field` is what named them."""
    states = {one.endpoint_id: one.state for one in await store.these_endpoints(org_id, endpoint_ids)}
    for endpoint_id in endpoint_ids:
        if endpoint_id not in states:
            raise InvalidInput(field, f"there is no endpoint {endpoint_id}")
        if states[endpoint_id] is EndpointState.DELETED:
            raise InvalidInput(field, f"endpoint {endpoint_id} was deleted")
