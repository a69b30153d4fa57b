"""For programs that receive webhooks: verify that a request is from Doorstep, and handle each event once.

    from doorstep.receiver import Once, SqliteLedger, Webhook

This module works with any web framework and does not load the engine. See docs/how-to/receiving.md.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import msgspec

from doorstep.errors import DoorstepError, InvalidInput
from doorstep.transports.signature import TOLERANCE_SECONDS, verifier_for, version_of

__all__ = [
    "HeaderMissing",
    "HeaderUnreadable",
    "Ledger",
    "MemoryLedger",
    "Once",
    "Received",
    "SignatureWrong",
    "SqliteLedger",
    "Standing",
    "StillHandling",
    "TooNew",
    "TooOld",
    "Unverified",
    "VersionUnknown",
    "Webhook",
]

T = TypeVar("T")
Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
"""The headers as any framework provides them; names are case-insensitive."""

_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_TIMESTAMP_DIGITS_MAX = 15
_SIGNATURE_FORM = re.compile(r"[0-9A-Za-z]+,[0-9A-Za-z+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class Received:
    """A verified webhook."""

    webhook_id: str
    """The event's id, which is the same for every attempt. Handle each id once."""
    sent_at: datetime
    body: bytes

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The body, decoded from JSON. If a pydantic model, dataclass, TypedDict or msgspec struct is given, the result
        is an instance of it, and a body that does not match raises ValueError."""
        if type is Any:
            return json.loads(self.body)
        if (validator := getattr(type, "__pydantic_validator__", None)) is not None:
            return validator.validate_json(self.body)
        return msgspec.json.decode(self.body, type=type)


class Webhook:
    """Verifies the webhooks of one endpoint.

    Pass the endpoint's secret (`whsec_…`) or public key (`whpk_…`); during a rotation, both the old and the new one.
    """

    def __init__(self, *secrets: str, tolerance_seconds: float = TOLERANCE_SECONDS) -> None:
        if not secrets:
            raise InvalidInput(
                "secrets", "must contain at least one secret, got none; nothing can be verified without one"
            )
        self._checks = tuple(verifier_for(secret) for secret in secrets)
        self._versions = frozenset(map(version_of, secrets))
        self._tolerance_seconds = tolerance_seconds

    def verify(self, headers: Headers, body: bytes, *, now: float | None = None) -> Received:
        """Return the webhook, or raise Unverified with the reason. Tests can pass `now`, in seconds since 1970."""
        if not isinstance(body, bytes | bytearray):
            raise TypeError(f"body must be the bytes of the request as received, got {type(body).__name__}")
        found = _webhook_headers(headers)
        sent = _timestamp(found[_TIMESTAMP])
        self._check_age(sent, time.time() if now is None else now)
        self._check_signature(found, body)
        return Received(found[_ID], datetime.fromtimestamp(sent, UTC), bytes(body))

    def _check_age(self, sent: int, now: float) -> None:
        tolerated = f"{self._tolerance_seconds:g} s"
        if sent < now - self._tolerance_seconds:
            raise TooOld(f"{_TIMESTAMP} is {now - sent:.0f} s ago; up to {tolerated} are tolerated")
        if sent > now + self._tolerance_seconds:
            raise TooNew(f"{_TIMESTAMP} is {sent - now:.0f} s ahead; up to {tolerated} are tolerated")

    def _check_signature(self, found: Mapping[str, str], body: bytes) -> None:
        """Compare every signature with every secret in constant time, even after a match."""
        content = b"%b.%b.%b" % (found[_ID].encode(), found[_TIMESTAMP].encode(), body)
        given = [one for one in found[_SIGNATURE].split(" ") if _SIGNATURE_FORM.fullmatch(one)]
        if not given:
            raise HeaderUnreadable(
                _SIGNATURE, "versions and base64 signatures, such as v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9"
            )
        matches = [check(content, signature) for check in self._checks for signature in given]
        if any(matches):
            return
        if not self._versions & {one.partition(",")[0] for one in given}:
            wanted = " or ".join(sorted(self._versions))
            raise VersionUnknown(f"no signature in {_SIGNATURE} has the version of this endpoint's secret, {wanted}")
        raise SignatureWrong(f"no signature in {_SIGNATURE} matches the secret of this endpoint")


def _webhook_headers(headers: Headers) -> dict[str, str]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    lowered = {name.lower(): value for name, value in pairs}
    for name in (_ID, _TIMESTAMP, _SIGNATURE):
        if not lowered.get(name):
            raise HeaderMissing(name)
        if not lowered[name].isascii():
            raise HeaderUnreadable(name, "ASCII")
    return lowered


def _timestamp(text: str) -> int:
    if not (text.isdigit() and len(text) <= _TIMESTAMP_DIGITS_MAX):
        raise HeaderUnreadable(_TIMESTAMP, "the seconds since 1970, as a whole number")
    return int(text)


class Unverified(DoorstepError):
    """The request could not be verified: it is not from Doorstep, was changed in transit, or is too old or too new."""


class HeaderMissing(Unverified):
    """A required header is missing."""

    def __init__(self, header: str) -> None:
        super().__init__(f"the header {header} is missing")
        self.header = header


class HeaderUnreadable(Unverified):
    """A header is malformed."""

    def __init__(self, header: str, rule: str) -> None:
        super().__init__(f"the header {header} must be {rule}")
        self.header = header


class TooOld(Unverified):
    """The timestamp is older than the tolerance."""


class TooNew(Unverified):
    """The timestamp is further in the future than the tolerance."""


class SignatureWrong(Unverified):
    """None of the signatures matches any of the secrets."""


class VersionUnknown(SignatureWrong):
    """There are signatures, but none of the version that the secret or public key is for (`v1` or `v1a`)."""


# -- each webhook once -------------------------------------------------------------------------------------------

HOLD_SECONDS = 60.0
DAY_SECONDS = 86_400.0


class Once:
    """Prevents a webhook from being handled twice.

        once = Once(SqliteLedger("handled.db"))
        with once(received.webhook_id) as first:
            if first:
                ...

    If the block raises an exception, the webhook is released, and the next request for it counts as the first again. If
    a request arrives while the same webhook is being handled, StillHandling is raised. In that case, do not respond
    with 200: the webhook would be lost if the first handler failed.

    If the process is killed after the work but before the ledger is updated, the webhook can be handled again
    `hold_seconds` after the handler started. For an effect that must not happen twice, store the id in the same
    transaction as the effect. If a handler takes longer than `hold_seconds`, a second one may run at the same time.
    """

    def __init__(
        self, ledger: Ledger, *, hold_seconds: float = HOLD_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._hold_seconds = hold_seconds
        self._clock = clock

    @contextmanager
    def __call__(self, webhook_id: str) -> Iterator[bool]:
        """Yields True if the webhook has not been handled yet."""
        now = self._clock()
        until = now + self._hold_seconds
        standing = self._ledger.claim(webhook_id, now, until)
        if standing is Standing.HANDLING:
            raise StillHandling(f"webhook {webhook_id} is being handled; send it again later")
        if standing is Standing.HANDLED:
            yield False
            return
        try:
            yield True
        except BaseException:
            self._ledger.release(webhook_id, until)
            raise
        self._ledger.finish(webhook_id, self._clock())


class StillHandling(DoorstepError):
    """The same webhook is already being handled; the sender should try again later."""


class Standing(Enum):
    """The state of a webhook when a request for it arrives."""

    NEW = "new"
    HANDLING = "handling"
    """Claimed by a handler that has not finished."""
    HANDLED = "handled"


class Ledger(Protocol):
    """Stores webhook ids. Times are in seconds since 1970. Each method is atomic."""

    def claim(self, webhook_id: str, now: float, until: float) -> Standing:
        """Claim a webhook until the time `until`. NEW means that the caller now holds the claim. Expired claims can be
        taken over."""

    def finish(self, webhook_id: str, now: float) -> None:
        """Record that the webhook has been handled."""

    def release(self, webhook_id: str, until: float) -> None:
        """Give up a claim on an unhandled webhook. Only the claim that ends at `until` is released, not a later one."""


_CREATE = """
CREATE TABLE IF NOT EXISTS webhook (
  webhook_id TEXT PRIMARY KEY, until REAL NOT NULL, handled INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS webhook_until ON webhook (until);
"""
_FORGET = "DELETE FROM webhook WHERE webhook_id IN (SELECT webhook_id FROM webhook WHERE until <= ? LIMIT 100)"
"""Each claim adds one id and deletes up to 100 expired ones, so the file does not keep growing."""
_FORGET_OLDEST = "DELETE FROM webhook WHERE rowid <= (SELECT max(rowid) FROM webhook) - ?"
_CLAIM = """
INSERT INTO webhook (webhook_id, until, handled) VALUES (:webhook_id, :until, 0)
ON CONFLICT (webhook_id) DO UPDATE SET until = :until, handled = 0 WHERE until <= :now
"""
_FINISH = """
INSERT INTO webhook (webhook_id, until, handled) VALUES (:webhook_id, :until, 1)
ON CONFLICT (webhook_id) DO UPDATE SET until = :until, handled = 1
"""
_RELEASE = "DELETE FROM webhook WHERE webhook_id = ? AND until = ? AND NOT handled"


class SqliteLedger:
    """A ledger in an SQLite file, for all threads and processes of one machine.

    It survives restarts. After a power failure, the most recent webhooks may be handled again.
    """

    def __init__(self, path: str | Path, *, keep_seconds: float = 7 * DAY_SECONDS) -> None:
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_CREATE)

    def claim(self, webhook_id: str, now: float, until: float) -> Standing:
        """See `Ledger`."""
        given = {"webhook_id": webhook_id, "now": now, "until": until}
        with self._transaction() as connection:
            connection.execute(_FORGET, (now,))
            if connection.execute(_CLAIM, given).rowcount:
                return Standing.NEW
            (handled,) = connection.execute(
                "SELECT handled FROM webhook WHERE webhook_id = ?", (webhook_id,)
            ).fetchone()
            return Standing.HANDLED if handled else Standing.HANDLING

    def finish(self, webhook_id: str, now: float) -> None:
        """See `Ledger`."""
        with self._transaction() as connection:
            connection.execute(_FINISH, {"webhook_id": webhook_id, "until": now + self._keep_seconds})

    def release(self, webhook_id: str, until: float) -> None:
        """See `Ledger`."""
        with self._transaction() as connection:
            connection.execute(_RELEASE, (webhook_id, until))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction. It takes the write lock at the start, because upgrading a read lock later can fail."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


class MemoryLedger(SqliteLedger):
    """A ledger in memory, for one process. When full, it drops the oldest ids; those webhooks can be handled again."""

    def __init__(self, *, keep_seconds: float = DAY_SECONDS, entries_max: int = 100_000) -> None:
        super().__init__(":memory:", keep_seconds=keep_seconds)
        self._entries_max = entries_max

    def claim(self, webhook_id: str, now: float, until: float) -> Standing:
        """See `Ledger`."""
        standing = super().claim(webhook_id, now, until)
        with self._transaction() as connection:
            connection.execute(_FORGET_OLDEST, (self._entries_max,))
        return standing
