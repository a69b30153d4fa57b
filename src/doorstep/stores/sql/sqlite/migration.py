"""Bringing the file's schema up to date, and refusing to work on another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from doorstep.errors import ConfigError
from doorstep.stores.sql.migrations import require_current, revision_of, upgrade
from doorstep.stores.sql.sqlite.connections import connect, unavailable
from doorstep.stores.sql.sqlite.forking import using_sqlite


def migrate(path: str) -> None:
    """Create the file if need be, and upgrade it. Processes that do so at once wait for each other."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"the folder of the database does not exist: {folder}; create it or change the database URL")
    with _alembic_connection(path) as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        upgrade(connection)
        connection.commit()


def require_migrated(path: str) -> None:
    """ConfigError unless the file has exactly the schema of this version."""
    if not Path(path).exists():
        require_current(None, path)
    with _alembic_connection(path) as connection:
        require_current(revision_of(connection), path)


@contextmanager
def _alembic_connection(path: str) -> Iterator[Connection]:
    """One of our connections as Alembic wants it; SQLAlchemy's wrapping of the driver's errors is undone."""
    with using_sqlite, unavailable(path):
        driver = connect(path, create=True)
        engine = create_engine("sqlite://", creator=lambda: driver, poolclass=NullPool)
        try:
            with engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise error.orig or error from error
        finally:
            driver.close()
