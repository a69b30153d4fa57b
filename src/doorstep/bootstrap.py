"""The first start: the key that seals secrets, the default organization, the first API key; and the engine's numbers."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

from doorstep.clock import Instant, to_iso
from doorstep.config import Settings
from doorstep.encryption import Sealer, new_secret_key
from doorstep.engine.directory import Tuning
from doorstep.errors import ConfigError, Conflict
from doorstep.model.endpoint import RetryPolicy
from doorstep.model.org import ApiKey, Org, Role
from doorstep.model.record import uuid7
from doorstep.operations import keys
from doorstep.stores.open import sqlite_path
from doorstep.stores.store import Store

DEFAULT_ORG = UUID("00000000-0000-7000-8000-000000000001")
"""The organization that exists from the start; the bootstrap key acts for it."""

_KEY_FILE = "secret.key"
_log = logging.getLogger("doorstep.bootstrap")


def data_path(settings: Settings) -> Path | None:
    """The folder of an embedded database; None where the data is elsewhere."""
    path = sqlite_path(settings.database_url)
    return None if path is None else Path(path).absolute().parent


def pinned(settings: Settings) -> Settings:
    """With the place of an embedded database written in full: the program may change its folder later."""
    return settings.model_copy(update={"database_url": pinned_url(settings.database_url)})


def pinned_url(url: str) -> str:
    path = sqlite_path(url)
    return url if path is None or path.startswith("/") else f"sqlite:///{quote(str(Path(path).absolute()))}"


def make_folder(settings: Settings) -> None:
    """Where an embedded database is to be; a first start finds nothing yet."""
    folder = data_path(settings)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be made: {error.strerror}; check DOORSTEP_DATABASE_URL"
        ) from None


def key_path(settings: Settings) -> Path | None:
    """The file that an embedded store keeps its own secret key in."""
    folder = data_path(settings)
    return None if folder is None else folder / _KEY_FILE


def sealer_for(settings: Settings) -> Sealer:
    """From DOORSTEP_SECRET_KEY; an embedded store keeps a key of its own beside its data, made on first use."""
    if settings.secret_key is not None:
        return Sealer.from_text(settings.secret_key.get_secret_value())
    file = key_path(settings)
    if file is not None:
        return Sealer.from_text(_kept_key(file))
    if settings.embedded:
        return Sealer.from_text(new_secret_key())
    raise ConfigError(
        "secret_key must be set when the database is shared, got none; set DOORSTEP_SECRET_KEY to the same value "
        f"for every process, for example {new_secret_key()}"
    )


def _kept_key(path: Path) -> str:
    """Read the key, or make one that only the owner can read; two first starts at once agree on one of them."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _write_key(path)
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"the secret key file {path} cannot be used: {error.strerror}; check its folder") from None


def _write_key(path: Path) -> None:
    """On stable storage before anything is sealed with it: without it, what is sealed cannot be opened any more."""
    # A name that nobody else has: processes of two containers that share a volume may even have the same number.
    handle, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(handle, "w") as file:
            file.write(new_secret_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


async def prepare(store: Store, settings: Settings, now: Instant, *, new_key: bool = True) -> str | None:
    """Make the default organization and its first key where they are missing; returns a key only if it is new.

    Without `new_key` none is made up: the caller has nobody to show it to.

    A given key that was revoked stays revoked, and the log says so. It is no reason not to start: whoever revokes the
    bootstrap key once everybody has a key of their own may leave it in the environment.
    """
    if all(org.org_id != DEFAULT_ORG for org in await store.orgs()):
        await store.put_org(Org(org_id=DEFAULT_ORG, name="default", created_at=now))
    if settings.admin_key is not None:
        await _put_admin_key(store, settings.admin_key.get_secret_value(), now)
        return None
    if not new_key or await store.keys(DEFAULT_ORG):
        return None
    generated = keys.new_key()
    await _put_admin_key(store, generated, now)
    return generated


async def _put_admin_key(store: Store, key: str, now: Instant) -> None:
    known = await store.find_key(keys.digest(key))
    if known is None:
        with contextlib.suppress(Conflict):  # another first start has kept the same key meanwhile
            await store.put_key(_admin_key(key, now))
    elif known.revoked_at is not None:
        _log.warning(
            "DOORSTEP_ADMIN_KEY was revoked at %s and stays so; use another admin key, or set a new one",
            to_iso(known.revoked_at),
        )


def _admin_key(key: str, now: Instant) -> ApiKey:
    return ApiKey(
        key_id=uuid7(now),
        org_id=DEFAULT_ORG,
        name="bootstrap",
        role=Role.ADMIN,
        prefix=keys.prefix(key),
        digest=keys.digest(key),
        created_at=now,
    )


def tuning_of(settings: Settings) -> Tuning:
    """The engine's numbers, from the settings."""
    return Tuning(
        lease_seconds=settings.lease_seconds,
        timeout_seconds=settings.timeout_seconds,
        places=settings.concurrency,
        policy=RetryPolicy(settings.retry_delays, name="standard"),
        retries_max=settings.max_retry_attempts,
        grace_seconds=settings.grace_seconds,
        payload_bytes_max=settings.payload_bytes_max,
        retention_days=settings.retention_days,
        archive_after_days=settings.retention_days,
        inbox_retention_days=settings.inbox_retention_days,
        audit_retention_days=settings.audit_retention_days,
        entity_retention_days=settings.entity_retention_days,
        minutes_retention_days=settings.minutes_retention_days,
        hours_retention_days=settings.hours_retention_days,
    )
