"""The parameters of every measurement: the stores, how thorough the measurement is, and the receiver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.databases import Database, Databases, StoreName
from bench.receiver import Receiver
from doorstep.config import Settings

ADMIN_KEY = "bench-admin-key"
SECRET_KEY = "ZG9vcnN0ZXAtYmVuY2gtZG9vcnN0ZXAtYmVuY2gtMTI="
PAYLOAD = b'{"text": "%s"}' % (b"x" * 1_012)
"""1 KiB of JSON."""


@dataclass(frozen=True)
class Setting:
    databases: Databases
    receiver: Receiver
    stores: tuple[StoreName, ...]
    quick: bool
    only: str = ""
    """Of measurements with several cases, run only those whose name contains this."""

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def variables(database: Database) -> dict[str, str]:
    """The environment of a `doorstep` process that works on this database and may deliver to loopback."""
    return {
        "DOORSTEP_DATABASE_URL": database.url,
        "DOORSTEP_ADMIN_KEY": ADMIN_KEY,
        "DOORSTEP_SECRET_KEY": SECRET_KEY,
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
        "DOORSTEP_LOG_FORMAT": "json",
        "DOORSTEP_GRACE_SECONDS": "1",
    }


def settings_for(url: str, **more: Any) -> Settings:
    """The same as `variables`, as settings for a Doorstep inside this process."""
    return Settings(
        **more,
        database_url=url,
        admin_key=ADMIN_KEY,
        secret_key=SECRET_KEY,
        allow_addresses="127.0.0.0/8",
    )
