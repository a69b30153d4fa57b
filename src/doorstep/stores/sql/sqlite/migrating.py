"""Bringing the file's schema up to date, and refusing to work on another one."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from doorstep.errors import ConfigError
from doorstep.stores.sql.migrations import require_current, revision_of, upgrade
from doorstep.stores.sql.sqlite.connections import connect, unavailable


def migrate(path: str) -> None:
    """Create the file if need be, and upgrade it. Processes that do so at once wait for each other."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"the folder of the database does not exist: {folder}; create it or change the database URL")
    engine = create_engine("sqlite://", creator=lambda: connect(path, create=True), poolclass=NullPool)
    with unavailable(path), engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        upgrade(connection)
        connection.commit()


def require_migrated(path: str) -> None:
    """ConfigError unless the file has exactly the schema of this version."""
    if not Path(path).exists():
        require_current(None, path)
    engine = create_engine("sqlite://", creator=lambda: connect(path), poolclass=NullPool)
    with unavailable(path), engine.connect() as connection:
        require_current(revision_of(connection), path)
