"""The environment of functions on a SQLite store, with a receiver on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from doorstep.app import Doorstep
from doorstep.config import Settings
from doorstep.encryption import new_secret_key
from tests.support.receiver import Receiver, receiving

ADMIN_KEY = "an-admin-key-for-tests"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as listening:
        yield listening


@pytest.fixture
async def environ(tmp_path: Path) -> dict[str, str]:
    """Functions do not migrate their store, so this does."""
    url, secret_key = f"sqlite:///{tmp_path}/functions.db", new_secret_key()
    async with Doorstep(Settings(database_url=url, secret_key=secret_key)):
        pass
    return {
        "DOORSTEP_DATABASE_URL": url,
        "DOORSTEP_ADMIN_KEY": ADMIN_KEY,
        "DOORSTEP_SECRET_KEY": secret_key,
        "DOORSTEP_ALLOW_ADDRESSES": "127.0.0.0/8",
        "DOORSTEP_SERVICE_NAME": "triggers",
        "RETRY_DELAYS": "60,300,900",
    }
