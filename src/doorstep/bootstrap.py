"""Creates the secret key, the default organization and the first API key; derives the engine's tuning from settings."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from functools import cache
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

from doorstep.clock import Instant, to_iso
from doorstep.config import Settings
from doorstep.encryption import Sealer, new_secret_key
from doorstep.engine.directory import Tuning
from doorstep.errors import ConfigError, Conflict
from doorstep.model.listing import KeyChecks, KeysByDigest, OrgKeys, Orgs
from doorstep.model.org import ApiKey, KeyCheck, Org, Role
from doorstep.model.record import uuid7
from doorstep.operations import keys
from doorstep.policy.retry import standard_policy
from doorstep.stores.open import sqlite_path
from doorstep.stores.store import Put, Store

DEFAULT_ORG = UUID("00000000-0000-7000-8000-000000000001")
"""The organization that always exists; the bootstrap key belongs to it."""

_KEY_FILE = "secret.key"
_log = logging.getLogger("doorstep.bootstrap")


def data_path(settings: Settings) -> Path | None:
    """The folder of an embedded database; None for any other database."""
    path = sqlite_path(settings.database_url)
    return None if path is None else Path(path).absolute().parent


def pinned(settings: Settings) -> Settings:
    """The settings with an absolute database path, because the program may change its working directory later."""
    return settings.model_copy(update={"database_url": pinned_url(settings.database_url)})


def pinned_url(url: str) -> str:
    path = sqlite_path(url)
    return url if path is None or path.startswith("/") else f"sqlite:///{quote(str(Path(path).absolute()))}"


def make_folder(settings: Settings) -> None:
    """Create the folder of an embedded database. It does not exist at the first start."""
    folder = data_path(settings)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be created: {error.strerror}; check DOORSTEP_DATABASE_URL"
        ) from None


def key_path(settings: Settings) -> Path | None:
    """The file that holds the secret key of an embedded store; None for any other store."""
    folder = data_path(settings)
    return None if folder is None else folder / _KEY_FILE


async def open_sealer(store: Store, settings: Settings) -> Sealer:
    """A sealer with the key that encrypts the secrets in this store. Raises ConfigError if the settings have another
    key. The first process to open a store decides which key it has."""
    known = await store.find(None, KeyChecks())
    file = None if settings.secret_key else key_path(settings)
    if known and file is not None and not file.exists():
        raise ConfigError(
            f"the secret key file {file} is missing, and the secrets in the database are encrypted with its key; "
            f"{_RESTORE_KEY}"
        )
    sealer = sealer_for(settings)
    if not known and await store.write([Put(document=KeyCheck(fingerprint=sealer.fingerprint), expected_version=0)]):
        return sealer
    await check_key(store, settings, sealer)
    return sealer


async def check_key(store: Store, settings: Settings, sealer: Sealer) -> None:
    """Raise ConfigError unless this is the key that encrypts the secrets in the store."""
    known = await store.find(None, KeyChecks())
    if any(check.fingerprint != sealer.fingerprint for check in known):
        name = "DOORSTEP_SECRET_KEY" if settings.secret_key else f"the key in {key_path(settings)}"
        raise ConfigError(
            f"{name} is not the key that encrypted the secrets in the database; use the key that the other processes "
            f"use, or {_RESTORE_KEY}"
        )


async def adopt_key(store: Store, settings: Settings) -> None:
    """Make the key in the settings the key of the store, although the stored secrets are encrypted with another one."""
    await store.write([Put(document=KeyCheck(fingerprint=sealer_for(settings).fingerprint))])


_RESTORE_KEY = "restore it from your backup (if it is lost, see doorstep adopt-key --help)"


def sealer_for(settings: Settings) -> Sealer:
    """A sealer with DOORSTEP_SECRET_KEY. If it is unset, an embedded store creates a key file next to its data."""
    if settings.secret_key is not None:
        return Sealer.from_text(settings.secret_key.get_secret_value())
    file = key_path(settings)
    if file is not None:
        return Sealer.from_text(_read_or_create_key(file))
    if settings.embedded:
        return Sealer.from_text(_memory_key())
    raise ConfigError(
        "secret_key must be set when the database is shared, got none; set DOORSTEP_SECRET_KEY to the same value "
        f"for every process, for example {new_secret_key()}"
    )


@cache
def _memory_key() -> str:
    """The key of all stores in memory: a store that is closed and opened again must get the same one."""
    return new_secret_key()


def _read_or_create_key(path: Path) -> str:
    """Read the key file, or create one that only its owner can read.

    Two processes that start at the same time get the same key.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _write_key(path)
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"the secret key file {path} cannot be used: {error.strerror}; check its folder") from None


def _write_key(path: Path) -> None:
    """Flush the key to stable storage before it encrypts anything: without the key, secrets could not be decrypted."""
    # A random name, not the pid: processes in two containers that share a volume can have the same pid.
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
    """Create the default organization and its first key if they are missing; returns the key only if it is new.

    With `new_key=False`, no key is generated. Pass it if nobody would see the new key.

    A configured key that was revoked stays revoked, and a warning is logged. The program starts anyway: people may
    revoke the bootstrap key once they have their own keys, but forget to remove it from the environment.
    """
    if all(org.org_id != DEFAULT_ORG for org in await store.find(None, Orgs())):
        await store.write([Put(document=Org(org_id=DEFAULT_ORG, name="default", created_at=now))])
    if settings.admin_key is not None:
        await _put_admin_key(store, settings.admin_key.get_secret_value(), now)
        return None
    if not new_key or await store.find(DEFAULT_ORG, OrgKeys()):
        return None
    generated = keys.new_key()
    await _put_admin_key(store, generated, now)
    return generated


async def _put_admin_key(store: Store, key: str, now: Instant) -> None:
    known = await store.find(None, KeysByDigest(digest=keys.digest(key)))
    if not known:
        admin_key = ApiKey(
            key_id=uuid7(now),
            org_id=DEFAULT_ORG,
            name="bootstrap",
            role=Role.ADMIN,
            prefix=keys.prefix(key),
            digest=keys.digest(key),
            created_at=now,
        )
        with contextlib.suppress(Conflict):  # another process has just stored the same key
            await store.write([Put(document=admin_key)])
    elif known[0].revoked_at is not None:
        _log.warning(
            "DOORSTEP_ADMIN_KEY was revoked at %s and stays revoked; use another admin key, or set a new one",
            to_iso(known[0].revoked_at),
        )


def tuning_of(settings: Settings) -> Tuning:
    """The engine's tuning. Each setting that has the same name as a field of `Tuning` is copied to that field."""
    copied = {name: getattr(settings, name) for name in Tuning.__struct_fields__ if name in Settings.model_fields}
    return Tuning(
        **copied,
        slots=settings.concurrency,
        policy=standard_policy(settings.own_retry_delays),
        retries_max=settings.max_retry_attempts,
        archive_after_days=settings.retention_days,
    )
