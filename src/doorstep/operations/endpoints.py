"""Creates, updates, pauses, resumes and deletes endpoints, rotates their secrets, and applies the endpoint declarations
of programs.

Every change is audited."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.engine import facts
from doorstep.engine.directory import (
    RACES_MAX,
    AlreadyExists,
    Directory,
    change_endpoint,
    create_endpoint,
    existing,
    put_circuit,
)
from doorstep.errors import ConfigError, Conflict, InvalidInput, NotFound
from doorstep.model.action import audit_entry
from doorstep.model.attempt import Code
from doorstep.model.endpoint import Circuit, Endpoint, EndpointState, RetryPolicy, SigningSecret
from doorstep.model.listing import Count, WaitingDeliveries
from doorstep.model.record import uuid7
from doorstep.operations.endpoint_rules import (
    EndpointForm,
    EndpointRules,
    check_bounds,
    check_plain_host,
    check_signing,
    new_endpoint,
    new_signing,
    policies_of,
    updated_endpoint,
    with_defaults,
)
from doorstep.operations.keys import name_of
from doorstep.policy.circuit import after_success
from doorstep.policy.classification import DELETED_WHILE_WAITING
from doorstep.policy.routing import route, subscribes
from doorstep.stores.limits import check_storable
from doorstep.stores.store import Store
from doorstep.telemetry.facts import Telemetry

DRAIN_MIN, DRAIN_MAX = 0.001, 100_000.0
OVERLAP_SECONDS = 86_400.0
_OVERLAP_SECONDS_MAX = 30 * 86_400.0
_DEAD_LETTER_BATCH = 1_000
_SECRETS_MAX = 5
"""Each secret adds a signature to every request. Beyond this number, a new secret is rejected. The oldest secret is not
dropped instead, because the receiver may still rely on it until its announced expiry."""


class Rotated(NamedTuple):
    endpoint: Endpoint
    verifier: str
    """The new shared secret or public key, with which the receiver verifies signatures from now on. It is empty if the
    caller gave an own shared secret."""
    old_expires_at: Instant | None
    """When the old secret stops signing; None if it has stopped already."""


class EndpointService:
    """Each change and its audit entry are written in one transaction. `wake` is called if deliveries may have become
    due."""

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
        """Create an endpoint. Returns it with the secret or public key with which its receiver verifies signatures.
        Raises Conflict if the organization has too many endpoints."""
        form = with_defaults(form, *self._rules.defaults)
        await check_plain_host(form.url, form.destination, self._rules.guard)
        now = self._clock.now()
        endpoint, verifier = new_endpoint(form, self._rules, endpoint_id=uuid7(now), org_id=org_id, now=now)
        created = await create_endpoint(self._store, endpoint, actor, self._rules.endpoints_max)
        await self._directory.reload((org_id,))
        return created, verifier

    async def update(
        self, org_id: UUID, endpoint_id: UUID, changes: Mapping[str, Any], actor: str, version: int | None = None
    ) -> Endpoint:
        """Change some fields. Raises Conflict if `version` is given and is no longer the current version."""
        now = self._clock.now()
        url, destination = changes.get("url"), changes.get("destination")
        known = await self._store.get(Endpoint, org_id, endpoint_id)
        if known.url not in (url, getattr(destination, "url", None)):
            await check_plain_host(url, destination, self._rules.guard)

        def changed(endpoint: Endpoint) -> Endpoint:
            _check_version(existing(endpoint), version)
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
        own: str | None = None,
    ) -> Rotated:
        """Create a new secret, or take the caller's `own`, with which requests are signed from now on. They are also
        signed with the old secret until the overlap ends.

        Raises Conflict if there would be too many secrets, which cannot happen without an overlap.
        """
        check_bounds("overlap_seconds", overlap_seconds, (0, _OVERLAP_SECONDS_MAX))
        if signing is not None:
            check_signing(signing)
        now = self._clock.now()
        until = now + seconds(overlap_seconds) if overlap_seconds else None
        current = (await self._store.get(Endpoint, org_id, endpoint_id)).signing_secret
        scheme = signing or ("v1" if current is None else current.scheme)
        secret, verifier = new_signing(endpoint_id, scheme, self._rules.sealer, own)

        def rotated(endpoint: Endpoint) -> Endpoint:
            kept = outgoing(existing(endpoint).secrets, now, until)
            _check_room(kept)
            return msgspec.structs.replace(endpoint, secrets=(secret, *kept))

        endpoint = await self._write(org_id, endpoint_id, rotated, actor, "endpoint.rotate_secret", "")
        return Rotated(endpoint, verifier, until)

    async def pause(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> Endpoint:
        """Hold the deliveries of an endpoint until it is resumed."""
        check_storable("reason", reason)

        paused = _in_state(EndpointState.PAUSED, reason)
        return await self._write(org_id, endpoint_id, paused, actor, "endpoint.pause", reason)

    async def count_skipped(self, org_id: UUID, endpoint_id: UUID, before: Instant) -> Count:
        """How many waiting deliveries `resume` would skip with this `skip_older_than`."""
        return await self._store.count(org_id, WaitingDeliveries(endpoint_id=endpoint_id, created_before=before))

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
        """Enable a paused or disabled endpoint. Waiting deliveries are sent immediately or at a given rate; old ones
        can be skipped.

        Skipped deliveries become dead letters, so that they can still be found. Skipping may take a while. Raises
        Conflict if the endpoint's state changes in the meantime, because the caller did not know about that change.
        """
        check_bounds("drain_per_second", drain_per_second, (DRAIN_MIN, DRAIN_MAX))
        check_storable("reason", reason)
        seen = existing(await self._store.get(Endpoint, org_id, endpoint_id))

        def resumed(endpoint: Endpoint) -> Endpoint:
            _check_same_state(existing(endpoint), seen)
            return msgspec.structs.replace(
                endpoint,
                state=EndpointState.ACTIVE,
                state_reason="",
                drain_per_second=drain_per_second,
                drain_before=None if drain_per_second is None else self._clock.now(),
            )

        if skip_older_than is not None:
            await self._skip(seen, skip_older_than, actor, reason)
        await self._close_circuit(seen)
        enabled = await self._write(org_id, endpoint_id, resumed, actor, "endpoint.resume", reason)
        self._wake()
        return enabled

    async def delete(self, org_id: UUID, endpoint_id: UUID, actor: str, reason: str = "") -> None:
        """Delete an endpoint; its waiting deliveries become dead letters. The reason is for the audit log."""
        check_storable("reason", reason)

        deleted = _in_state(EndpointState.DELETED, f"deleted by {await name_of(self._store, org_id, actor)}")
        await self._write(org_id, endpoint_id, deleted, actor, "endpoint.delete", reason)
        await self._dead_letter_all(endpoint_id, Code.ENDPOINT_DELETED, DELETED_WHILE_WAITING)

    # -- declarations --------------------------------------------------------------------------------------

    async def declare(self, declarations: Sequence[Declaration]) -> None:
        """Create or update the stored endpoints to match the code of a program.

        Changes made by operators (a pause, a new secret, any field) are kept until the declaration in the code changes.
        """
        for form, org_id in declarations:
            await self._declare(form, org_id)
        await self._directory.reload({org_id for _, org_id in declarations})

    async def _declare(self, form: EndpointForm, org_id: UUID) -> None:
        generation = 0
        while True:
            endpoint_id = uuid5(org_id, f"{form.name}/{generation}")
            now = self._clock.now()
            try:
                known = await self._store.get(Endpoint, org_id, endpoint_id)
            except NotFound:
                endpoint, _ = new_endpoint(form, self._rules, endpoint_id=endpoint_id, org_id=org_id, now=now)
                with _naming_declaration(form.name), suppress(AlreadyExists):  # another process may create it meanwhile
                    await create_endpoint(self._store, _with_digest(endpoint, form, self._rules), _ACTOR)
                continue
            if known.state is not EndpointState.DELETED:
                return await self._update_declared(known, form)
            generation += 1  # it was deleted and is declared again: a new endpoint with its own history

    async def _update_declared(self, known: Endpoint, form: EndpointForm) -> None:
        declared = {
            name: getattr(form, name) for name in EndpointForm.__struct_fields__ if name not in ("signing", "secret")
        }

        def changed(endpoint: Endpoint) -> Endpoint | None:
            if endpoint.declared == _digest(form, self._rules.standard):
                return None
            return _with_digest(updated_endpoint(endpoint, declared, self._rules), form, self._rules)

        now = self._clock.now()
        with _naming_declaration(form.name):
            await change_endpoint(
                self._store, known.org_id, known.endpoint_id, changed, actor=_ACTOR, action="endpoint.declare", now=now
            )

    # -- writing -------------------------------------------------------------------------------------------

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
        assert written is not None, "a change always returns an endpoint or raises"
        await self._directory.reload((org_id,))
        return written

    async def _skip(self, endpoint: Endpoint, before: Instant, actor: str, reason: str) -> None:
        """Skip old deliveries. This has its own audit entry, because the deliveries stay skipped even if resuming the
        endpoint fails afterwards."""
        why = f"Skipped on resume: accepted before {to_iso(before)}."
        count = await self._dead_letter_all(endpoint.endpoint_id, Code.SKIPPED, why, before)
        entry = audit_entry(
            self._clock.now(),
            endpoint.org_id,
            actor,
            "endpoint.skip",
            endpoint.endpoint_id,
            result=f"{count} skipped",
            reason=f"{why} {reason}".rstrip(),
        )
        await self._store.write([], entry)

    async def _close_circuit(self, endpoint: Endpoint) -> None:
        """Close the circuit, which resets its failures. Without this, if the endpoint has been failing for days, its
        next failure would disable it again."""
        for _ in range(RACES_MAX):
            now = self._clock.now()
            circuit = await self._store.get(Circuit, endpoint.org_id, endpoint.endpoint_id)
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
            moved = await self._store.dead_letter_waiting(endpoint_id, code, reason, now, _DEAD_LETTER_BATCH, before)
            self._telemetry.emit_all(facts.moved(moved, now))
            count += len(moved.moves)
            if not moved.moves:  # a short batch may only mean that some deliveries were claimed meanwhile
                return count


@contextmanager
def _naming_declaration(name: str) -> Iterator[None]:
    """Raise ConfigError if the name of a declared endpoint is taken, because the program cannot start then."""
    try:
        yield
    except AlreadyExists:
        raise
    except Conflict as error:
        raise ConfigError(f"handler {name!r} cannot be declared: {error}") from None


def _in_state(state: EndpointState, reason: str) -> Callable[[Endpoint], Endpoint]:
    """A function that changes the state of an endpoint."""
    return lambda endpoint: msgspec.structs.replace(existing(endpoint), state=state, state_reason=reason)


def outgoing(secrets: tuple[SigningSecret, ...], now: Instant, until: Instant | None) -> tuple[SigningSecret, ...]:
    """The old secrets that continue to sign along with a new one, newest first. None of them signs after `until`."""
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
    """Raise Conflict if there are too many old secrets. The error message contains the time when the first of them
    expires."""
    if len(kept) >= _SECRETS_MAX:
        first_end = min(secret.expires_at for secret in kept if secret.expires_at is not None)
        raise Conflict(
            f"the endpoint has {_SECRETS_MAX} secrets until {to_iso(first_end)}, which is the maximum; rotate again "
            "then, or set overlap_seconds to 0, which ends all old secrets immediately"
        )


def _check_version(endpoint: Endpoint, version: int | None) -> None:
    if version is not None and version != endpoint.version:
        raise Conflict(
            f"endpoint {endpoint.endpoint_id} is at version {endpoint.version}, got {version}; "
            "read it again and repeat the change if it still applies"
        )


def _check_same_state(endpoint: Endpoint, seen: Endpoint) -> None:
    if endpoint.state is not seen.state:
        raise Conflict(
            f"endpoint {endpoint.endpoint_id} was {seen.state} and became {endpoint.state} while it was being resumed; "
            "check its state and try again"
        )


_ACTOR = "program"
_DIGEST_CHARS = 16
_DIGESTED_SINCE_0_1_0 = frozenset(
    {"name", "url", "handler", "event_types", "policy", "policy_by_event_type", "timeout_seconds", "concurrency_max"}
    | {"rate_per_second", "headers", "retry_on", "give_up_on", "code_map", "circuit", "envelope", "batch", "signing"}
)
"""The settings that version 0.1.0 included in the digest, whether set or not."""


class Declaration(NamedTuple):
    """An endpoint as declared in the code of a program; its name is unique in the organization."""

    form: EndpointForm
    org_id: UUID


def _with_digest(endpoint: Endpoint, form: EndpointForm, rules: EndpointRules) -> Endpoint:
    return msgspec.structs.replace(endpoint, declared=_digest(form, rules.standard))


def _digest(form: EndpointForm, standard: RetryPolicy) -> str:
    """A digest of the declaration, the same in every process. It also changes if the definition of a policy named in
    the declaration changes.

    A setting added by a later version is included only if it is set, so that an upgrade does not change every digest.
    """
    resolved = msgspec.structs.replace(form, **policies_of(form, standard))
    declared, defaults = (msgspec.to_builtins(one) for one in (resolved, EndpointForm(name="")))
    digested = {
        name: value for name, value in declared.items() if name in _DIGESTED_SINCE_0_1_0 or value != defaults[name]
    }
    for policy in (digested["policy"], *digested["policy_by_event_type"].values()):
        if policy is not None and not policy["ignore_retry_after"]:
            del policy["ignore_retry_after"]
    content = msgspec.json.encode(digested, order="sorted")
    return hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]


class EndpointNames:
    """The names of the endpoints of one organization. The names of deleted endpoints are known only after `look_up`."""

    def __init__(self, org_id: UUID, endpoints: Iterable[Endpoint]) -> None:
        """`endpoints` are those that are not deleted."""
        self._org_id = org_id
        self._endpoints = {one.endpoint_id: one for one in endpoints}
        self._deleted_names: dict[UUID, str] = {}

    async def look_up(self, store: Store, endpoint_ids: Iterable[UUID | None]) -> None:
        """Of the given endpoints, look up the names of those that were deleted."""
        for endpoint_id in {one for one in endpoint_ids if one is not None and not self.exists(one)}:
            with suppress(NotFound):
                self._deleted_names[endpoint_id] = (await store.get(Endpoint, self._org_id, endpoint_id)).name

    def exists(self, endpoint_id: UUID) -> bool:
        """Whether the endpoint exists and is not deleted."""
        return endpoint_id in self._endpoints

    def name(self, endpoint_id: UUID | None) -> str:
        if endpoint_id is None:
            return ""
        endpoint = self._endpoints.get(endpoint_id)
        return endpoint.name if endpoint else self._deleted_names.get(endpoint_id, "")

    def subscribers(self, event_type: str, about: UUID | None) -> tuple[UUID, ...]:
        """The endpoints that subscribe to operational events of this type. An endpoint receives no events about itself:
        while it has problems, such events could not be delivered to it."""
        routed = route(self._endpoints.values(), event_type)
        return tuple(one.endpoint_id for one in routed if one.endpoint_id != about and subscribes(one, event_type))


async def check_endpoints_exist(store: Store, org_id: UUID, endpoint_ids: Sequence[UUID], field: str) -> None:
    """Raise InvalidInput if one of the endpoints does not exist or was deleted. `field` is the input field that
    contained the ids."""
    states = {one.endpoint_id: one.state for one in await store.get_many(Endpoint, org_id, endpoint_ids)}
    for endpoint_id in endpoint_ids:
        if endpoint_id not in states:
            raise InvalidInput(field, f"there is no endpoint {endpoint_id}")
        if states[endpoint_id] is EndpointState.DELETED:
            raise InvalidInput(field, f"endpoint {endpoint_id} was deleted")
