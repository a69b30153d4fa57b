"""Every test of this folder that takes a `stage` runs on SQLite, and in the full tier on PostgreSQL; the time is not real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from doorstep.api.application import create_application
from doorstep.app import Doorstep
from examples.theatre import Prepare, Theatre, staged
from tests.acceptance.conftest import database_url, sqlite_url
from tests.support.api import listening

__all__ = ["database_url", "sqlite_url"]


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
    async with staged(database_url, prepare, say=told.append, migrate=False, served=_served) as it:
        yield it


@asynccontextmanager
async def _served(doorstep: Doorstep) -> AsyncIterator[str]:
    """By a server that ends at once."""
    async with listening(create_application(doorstep)) as port:
        yield f"http://127.0.0.1:{port}"
