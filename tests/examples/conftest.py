"""Every test of this folder that takes a `stage` runs on SQLite and on PostgreSQL; the time is not real."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from examples.theatre import Prepare, Theatre, staged
from tests.acceptance.conftest import database_url, migrated_file, sqlite_url

__all__ = ["database_url", "migrated_file", "sqlite_url"]


@pytest.fixture
def prepare() -> Prepare:
    """Registers handlers; an example that has some replaces it."""
    return lambda _: None


@pytest.fixture
def told() -> list[str]:
    """What a story says, line by line."""
    return []


@pytest.fixture
async def stage(database_url: str, prepare: Prepare, told: list[str]) -> AsyncIterator[Theatre]:
    async with staged(database_url, prepare, say=told.append, migrate=False) as it:
        yield it
