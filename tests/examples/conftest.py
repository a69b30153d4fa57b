"""Tests in this folder that take a `stage` run on SQLite and, in the full tier, also on PostgreSQL, with a simulated
clock."""

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
    """Registers handlers; the tests of an example with handlers override this fixture."""
    return lambda _: None


@pytest.fixture
def told() -> list[str]:
    """The lines that a story prints."""
    return []


@pytest.fixture
async def stage(database_url: str, prepare: Prepare, told: list[str]) -> AsyncIterator[Theatre]:
    async with staged(database_url, prepare, say=told.append, migrate=False, served=_served) as it:
        yield it


@asynccontextmanager
async def _served(doorstep: Doorstep) -> AsyncIterator[str]:
    """Serves the application, and stops immediately at the end."""
    async with listening(create_application(doorstep)) as port:
        yield f"http://127.0.0.1:{port}"
