"""Tests in this folder that take a `stage` run on SQLite and, in the full tier, also on PostgreSQL, with a simulated
clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from doorstep.api.application import create_application
from doorstep.app import Doorstep
from examples.theatre import Create, Prepare, Theatre, staged, without_program
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
def create() -> Create:
    """Creates the program of the profile; tests of a profile that is a program override this fixture."""
    return without_program


@pytest.fixture
async def stage(database_url: str, prepare: Prepare, create: Create, told: list[str]) -> AsyncIterator[Theatre]:
    async with staged(database_url, prepare, say=told.append, migrate=False, served=served, create=create) as it:
        yield it


@asynccontextmanager
async def served(doorstep: Doorstep) -> AsyncIterator[str]:
    """Serves the application, and stops immediately at the end."""
    async with listening(create_application(doorstep)) as port:
        yield f"http://127.0.0.1:{port}"
