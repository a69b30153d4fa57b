"""Sessions and sign-in links.

A session is an encrypted cookie: the server stores nothing, and every process can read it. The cookie contains the hash
of an API key, so the session ends when the key is revoked or expires. A cookie that cannot be decrypted or is too old
is ignored.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from doorstep.clock import DAY, SECOND, Clock, Instant
from doorstep.encryption import UnsealError
from doorstep.model.org import ALLOWED, ApiKey, Permission

if TYPE_CHECKING:
    from doorstep.components import Components

IDLE: Instant = 12 * 3_600 * SECOND
"""An unused session ends after this time."""
LONGEST: Instant = 7 * DAY
"""Every session ends after this time, however active the user was."""
_RENEWED_AFTER: Instant = 600 * SECOND
"""The minimum time between two renewals of a cookie."""
T = TypeVar("T", bound=msgspec.Struct)


class Session(NamedTuple):
    """A user who is signed in."""

    key: ApiKey
    csrf: str
    """The CSRF token that every form of this session contains. Other sites cannot know the token."""
    renewed: str | None = None
    """The renewed cookie, if the current cookie is due for renewal."""

    def may(self, permission: Permission) -> bool:
        return permission in ALLOWED[self.key.role]


class Flash(msgspec.Struct):
    """A message for the next page: the result of an action, or why it was rejected."""

    sentence: str
    good: bool = True
    watch: str = ""
    """If the result of the action is not known yet: the query of the page that tells it; see outcomes.py."""


class _SealedSession(msgspec.Struct):
    digest: bytes
    csrf: str
    began_at: Instant
    used_at: Instant


_CONTEXTS = {_SealedSession: "console session", Flash: "console message"}


class Sessions:
    def __init__(self, components: Callable[[], Components]) -> None:
        """`components` is a function that is called for each use, because a Doorstep has components only while it is
        open."""
        self._components = components

    def begin(self, key: ApiKey) -> str:
        """The cookie of a new session."""
        now = self._components().clock.now()
        return self.seal(_SealedSession(key.digest, secrets.token_urlsafe(24), now, now))

    async def session(self, cookie: str) -> Session | None:
        now, sealed = self._components().clock.now(), self.open(cookie, _SealedSession)
        if sealed is None or now >= min(sealed.used_at + IDLE, sealed.began_at + LONGEST):
            return None
        key = await self._components().keys.holder(sealed.digest)
        if key is None:
            return None
        is_due = now >= sealed.used_at + _RENEWED_AFTER
        renewed = self.seal(msgspec.structs.replace(sealed, used_at=now)) if is_due else None
        return Session(key, sealed.csrf, renewed)

    def seal(self, content: _SealedSession | Flash) -> str:
        """The value of a cookie that contains this content, encrypted."""
        sealed = self._components().sealer.seal(msgspec.msgpack.encode(content), context=_CONTEXTS[type(content)])
        return base64.urlsafe_b64encode(sealed).decode()

    def open(self, cookie: str, kind: type[T]) -> T | None:
        """The content of a cookie; None if it cannot be read, for example because another installation encrypted it."""
        try:
            sealed = base64.urlsafe_b64decode(cookie.encode())
            return msgspec.msgpack.decode(self._components().sealer.unseal(sealed, context=_CONTEXTS[kind]), type=kind)
        except (UnsealError, binascii.Error, msgspec.DecodeError, ValueError):  # or a cookie of an earlier release
            return None


LASTS: Instant = 30 * 60 * SECOND
_LIVING_MAX = 50
"""How many links of one organization are valid at the same time. A newer one replaces the oldest. The organizations do
not share this number, because one of them could then invalidate the links of all others."""


class _Link(NamedTuple):
    org_id: UUID
    digest: bytes
    until: Instant


class SignInLinks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._living: dict[str, _Link] = {}

    def new(self, key: ApiKey) -> str:
        """The path of a link that signs in with this key."""
        self._forget_old(key.org_id)
        token = secrets.token_urlsafe(24)
        self._living[token] = _Link(key.org_id, key.digest, self._clock.now() + LASTS)
        return f"/console/sign-in/{token}"

    def stands_for(self, token: str) -> bytes | None:
        """The hash of the API key that the link signs in with; None if the link was used, is too old or is unknown."""
        link = self._living.get(token)
        return link.digest if link is not None and link.until > self._clock.now() else None

    def spend(self, token: str) -> bool:
        """Make the link invalid; returns False if the link was already invalid."""
        living = self.stands_for(token) is not None
        self._living.pop(token, None)
        return living

    def _forget_old(self, org_id: UUID) -> None:
        now = self._clock.now()
        self._living = {token: link for token, link in self._living.items() if link.until > now}
        own = [token for token, link in self._living.items() if link.org_id == org_id]
        for token in own[: max(0, len(own) - _LIVING_MAX + 1)]:
            del self._living[token]
