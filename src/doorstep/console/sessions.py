"""Who is signed in. A session is a sealed cookie: nothing is kept on the server, and every process can open it.

It names a key by its hash, so it ends with the key. What cannot be opened, or is too old, is no session.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from doorstep.clock import DAY, SECOND, Clock, Instant
from doorstep.encryption import Sealer, UnsealError
from doorstep.model.org import ALLOWED, ApiKey, Permission
from doorstep.operations.keys import ApiKeys

IDLE: Instant = 12 * 3_600 * SECOND
"""A session that was not used for so long has ended."""
LONGEST: Instant = 7 * DAY
"""After this one signs in anew, however busy the session was."""
_RENEWED_AFTER: Instant = 600 * SECOND
"""A cookie is sealed anew no more often than that."""
_SESSION, _SAID = "console session", "console message"

T = TypeVar("T", bound=msgspec.Struct)


class Session(NamedTuple):
    """Somebody who is signed in."""

    key: ApiKey
    csrf: str
    """What every form of this session carries, and no other site can know."""
    renewed: str | None = None
    """The cookie to go on with, when it is time."""

    def may(self, permission: Permission) -> bool:
        return permission in ALLOWED[self.key.role]


class Flash(msgspec.Struct):
    """A sentence for the next page: what was done, or why it was not."""

    sentence: str
    good: bool = True


class _SealedSession(msgspec.Struct):
    digest: bytes
    csrf: str
    began_at: Instant
    used_at: Instant


class OpenParts(Protocol):
    """What sessions need of the components of a Doorstep."""

    @property
    def sealer(self) -> Sealer: ...
    @property
    def keys(self) -> ApiKeys: ...
    @property
    def clock(self) -> Clock: ...


class Sessions:
    def __init__(self, components: Callable[[], OpenParts]) -> None:
        """Asked for each time: a Doorstep has them only while it is open."""
        self._components = components

    def begin(self, key: ApiKey) -> str:
        """The cookie of a new session."""
        now = self._components().clock.now()
        return self._sealed(_SealedSession(key.digest, secrets.token_urlsafe(24), now, now), _SESSION)

    async def visitor(self, cookie: str) -> Session | None:
        session = self._opened(cookie, _SealedSession, _SESSION)
        if session is None or not self._lasts(session):
            return None
        key = await self._components().keys.holder(session.digest)
        return None if key is None else Session(key, session.csrf, self._renewed(session))

    def _lasts(self, session: _SealedSession) -> bool:
        now = self._components().clock.now()
        return now < session.used_at + IDLE and now < session.began_at + LONGEST

    def _renewed(self, session: _SealedSession) -> str | None:
        now = self._components().clock.now()
        if now < session.used_at + _RENEWED_AFTER:
            return None
        return self._sealed(msgspec.structs.replace(session, used_at=now), _SESSION)

    # -- what the next page says ---------------------------------------------------------------------------

    def sealed_sentence(self, said: Flash) -> str:
        return self._sealed(said, _SAID)

    def sentence(self, cookie: str) -> Flash | None:
        return self._opened(cookie, Flash, _SAID)

    # -- sealing -------------------------------------------------------------------------------------------

    def _sealed(self, content: msgspec.Struct, context: str) -> str:
        sealed = self._components().sealer.seal(msgspec.msgpack.encode(content), context=context)
        return base64.urlsafe_b64encode(sealed).decode()

    def _opened(self, cookie: str, kind: type[T], context: str) -> T | None:
        try:
            sealed = base64.urlsafe_b64decode(cookie.encode())
            return msgspec.msgpack.decode(self._components().sealer.unseal(sealed, context=context), type=kind)
        except (UnsealError, binascii.Error, msgspec.DecodeError, ValueError):  # also a cookie of an earlier release
            return None


LASTS: Instant = 30 * 60 * SECOND
_LIVING_MAX = 1_000


class SignInLinks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._living: dict[str, tuple[bytes, Instant]] = {}

    def new(self, key: ApiKey) -> str:
        """The path of a link that signs in as this key."""
        self._forget_old()
        token = secrets.token_urlsafe(24)
        self._living[token] = (key.digest, self._clock.now() + LASTS)
        return f"/console/sign-in/{token}"

    def stands_for(self, token: str) -> bytes | None:
        """The hash of its key; None for one that was used, is too old, or never was."""
        digest, until = self._living.get(token, (None, 0))
        return digest if until > self._clock.now() else None

    def spend(self, token: str) -> bool:
        """From now on it opens nothing; False if it did not before."""
        living = self.stands_for(token) is not None
        self._living.pop(token, None)
        return living

    def _forget_old(self) -> None:
        now = self._clock.now()
        self._living = {token: one for token, one in self._living.items() if one[1] > now}
        while len(self._living) >= _LIVING_MAX:
            del self._living[next(iter(self._living))]
