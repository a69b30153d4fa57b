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
from doorstep.model.org import ApiKey
from doorstep.model.permission import ALLOWED, Permission
from doorstep.path.keyring import ApiKeys
from doorstep.sealing import Sealer, UnsealError

IDLE: Instant = 12 * 3_600 * SECOND
"""A session that was not used for so long has ended."""
LONGEST: Instant = 7 * DAY
"""After this one signs in anew, however busy the session was."""
_RENEWED_AFTER: Instant = 600 * SECOND
"""A cookie is sealed anew no more often than that."""
_SESSION, _SAID = "console session", "console message"

T = TypeVar("T", bound=msgspec.Struct)


class Visitor(NamedTuple):
    """Somebody who is signed in."""

    key: ApiKey
    csrf: str
    """What every form of this session carries, and no other site can know."""
    renewed: str | None = None
    """The cookie to go on with, when it is time."""

    def may(self, permission: Permission) -> bool:
        return permission in ALLOWED[self.key.role]


class Said(msgspec.Struct):
    """A sentence for the next page: what was done, or why it was not."""

    sentence: str
    good: bool = True


class _Session(msgspec.Struct):
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
        return self._sealed(_Session(key.digest, secrets.token_urlsafe(24), now, now), _SESSION)

    async def visitor(self, cookie: str) -> Visitor | None:
        session = self._opened(cookie, _Session, _SESSION)
        if session is None or not self._lasts(session):
            return None
        key = await self._components().keys.holder(session.digest)
        return None if key is None else Visitor(key, session.csrf, self._renewed(session))

    def _lasts(self, session: _Session) -> bool:
        now = self._components().clock.now()
        return now < session.used_at + IDLE and now < session.began_at + LONGEST

    def _renewed(self, session: _Session) -> str | None:
        now = self._components().clock.now()
        if now < session.used_at + _RENEWED_AFTER:
            return None
        return self._sealed(msgspec.structs.replace(session, used_at=now), _SESSION)

    # -- what the next page says ---------------------------------------------------------------------------

    def sealed_sentence(self, said: Said) -> str:
        return self._sealed(said, _SAID)

    def sentence(self, cookie: str) -> Said | None:
        return self._opened(cookie, Said, _SAID)

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
