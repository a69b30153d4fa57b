"""Databases of before: brought to a revision that is not the newest, and no further."""

from __future__ import annotations

from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from doorstep.stores.sql import migrations


def migrate_to(revision: str, url: str) -> None:
    """`url` is one of SQLAlchemy; see `driven`."""
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    steps = {"version_table": migrations.VERSION_TABLE, "fn": lambda at, _: scripts._upgrade_revs(revision, at)}
    engine = create_engine(url)
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts=steps)
        context.run_migrations(op=Operations(context))
    engine.dispose()


def driven(url: str) -> str:
    """A PostgreSQL URL as SQLAlchemy wants it, for whoever works for every organization."""
    return f"{url.replace('postgresql://', 'postgresql+psycopg://')}?options=-cdoorstep.org%3D*"
