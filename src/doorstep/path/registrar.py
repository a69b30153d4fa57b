"""Beside the path: endpoints are created, changed, and given new secrets. Every change is audited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from doorstep.clock import Clock, Instant, seconds, to_iso
from doorstep.errors import Conflict, InvalidInput
from doorstep.model.endpoint import Endpoint, SigningSecret
from doorstep.model.ids import uuid7
from doorstep.path.change import change_endpoint, create_endpoint, living
from doorstep.path.directory import Directory
from doorstep.path.enrol import EndpointForm, Terms, amend, check_signing, enrol, new_signing
from doorstep.stores.store import Store

OVERLAP_SECONDS = 86_400.0
_OVERLAP_SECONDS_MAX = 30 * 86_400.0
_SECRETS_MAX = 5
"""Each of them adds a signature to every request. One more is refused, not the oldest dropped: its receiver was told
until when it signs."""


class Rotated(NamedTuple):
    endpoint: Endpoint
    verifier: str
    """What the receiver verifies with from now on: the new shared secret, or the new public key."""
    old_expires_at: Instant | None
    """Until when the old secret signs too; None where it does no longer."""


class Registrar:
    def __init__(self, store: Store, directory: Directory, clock: Clock, terms: Terms) -> None:
        self._store = store
        self._directory = directory
        self._clock = clock
        self._terms = terms

    async def create(self, form: EndpointForm, org_id: UUID, actor: str) -> tuple[Endpoint, str]:
        """A new endpoint, and what its receiver verifies signatures with. Conflict where there are too many already."""
        now = self._clock.now()
        endpoint, verifier = enrol(form, self._terms, endpoint_id=uuid7(now), org_id=org_id, now=now)
        created = await create_endpoint(self._store, endpoint, actor, self._terms.endpoints_max)
        await self._directory.reload()
        return created, verifier

    async def change(
        self, org_id: UUID, endpoint_id: UUID, changes: Mapping[str, Any], actor: str, version: int | None = None
    ) -> Endpoint:
        """Change some fields of its form. Conflict if it is no longer the version that the change was made for."""
        now = self._clock.now()

        def changed(endpoint: Endpoint) -> Endpoint:
            _check_version(living(endpoint), version)
            cleaned = msgspec.structs.replace(endpoint, secrets=unexpired(endpoint.secrets, now))
            return amend(cleaned, changes, self._terms)

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
        secret, verifier = new_signing(endpoint_id, scheme, self._terms.sealer)

        def rotated(endpoint: Endpoint) -> Endpoint:
            kept = outgoing(living(endpoint).secrets, now, until)
            _check_room(kept)
            return msgspec.structs.replace(endpoint, secrets=(secret, *kept))

        endpoint = await self._write(org_id, endpoint_id, rotated, actor, "endpoint.rotate_secret", "")
        return Rotated(endpoint, verifier, until)

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
