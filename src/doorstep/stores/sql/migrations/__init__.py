"""The schema's upgrades. Alembic runs them, and is loaded only where there is something to run.

`upgrade` brings a database to the newest revision; `require_current` refuses to work on any other. A revision is a
module in `versions/` whose `upgrade(op)` is handed its operations, so that two stores can migrate in one process.
Revisions are numbered: the name of their file begins with the number.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import column, inspect, select, table
from sqlalchemy.engine import Connection

from doorstep.errors import ConfigError

VERSION_TABLE = "doorstep_version"
"""Our own, because the program that embeds us may keep an `alembic_version` in the same database."""
FOLDER = Path(__file__).parent
"""Where Alembic finds `versions/`."""


def upgrade(connection: Connection) -> None:
    """Bring the schema to the newest revision, in the transaction that `connection` is in.

    Processes that upgrade at once must be kept apart by a lock that the caller holds until it commits.
    """
    if revision_of(connection) == head():
        return
    from doorstep.stores.sql.migrations.upgrading import run_to_head  # loading Alembic takes a tenth of a second

    run_to_head(connection, FOLDER, VERSION_TABLE)


def head() -> str:
    """The revision that this version of Doorstep works with."""
    return revisions()[-1]


def revisions() -> tuple[str, ...]:
    """Every revision that this version of Doorstep knows, the oldest first."""
    files = (FOLDER / "versions").glob("[0-9]*.py")
    return tuple(sorted(file.name.partition("_")[0] for file in files))


def revision_of(connection: Connection) -> str | None:
    """The revision that a database is at; None if it has never been migrated."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    return found


def require_current(found: str | None, database: str) -> None:
    """Refuse a database that is behind or ahead of this version of Doorstep, saying what to do."""
    if found == head():
        return
    if found is None:
        raise ConfigError(f"{database} has no Doorstep tables yet; run `doorstep migrate`")
    if found in revisions():
        raise ConfigError(f"{database} is at schema {found}, this version needs {head()}; run `doorstep migrate`")
    raise ConfigError(
        f"{database} is at schema {found}, which this version does not know (it needs {head()});"
        " it was migrated by a newer Doorstep: install that version"
    )
