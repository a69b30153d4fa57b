"""Schema upgrades. Alembic runs them, and is loaded only if an upgrade is needed.

A revision is a module in `versions/` whose file name begins with the revision's number. Its `upgrade(op)` receives
Alembic's operations as an argument. There is no alembic.ini, no env.py and no global state, so two stores can migrate
in one process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import column, inspect, select, table
from sqlalchemy.engine import Connection

from doorstep.errors import ConfigError

VERSION_TABLE = "doorstep_version"
"""This is not Alembic's default name, because the program that embeds Doorstep may have its own `alembic_version`
table."""
FOLDER = Path(__file__).parent
"""The folder in which Alembic finds `versions/`."""


def upgrade(connection: Connection) -> None:
    """Upgrade the schema to the newest revision, inside the current transaction of `connection`.

    The caller must hold a lock until it commits, so that processes that start at the same time upgrade one after
    another.
    """
    if revision_of(connection) == head():
        return
    from alembic.operations import Operations  # loading Alembic takes a tenth of a second
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(FOLDER))

    def steps(revision: Any, context: MigrationContext) -> Any:
        return scripts._upgrade_revs("head", revision)  # private, but Alembic's recipes call it too

    options = {"version_table": VERSION_TABLE, "transactional_ddl": True, "fn": steps}
    context = MigrationContext.configure(connection, opts=options)
    context.run_migrations(op=Operations(context))


def head() -> str:
    """The revision that this version of Doorstep needs."""
    return revisions()[-1]


def revisions() -> tuple[str, ...]:
    """All revisions that this version of Doorstep contains, oldest first."""
    files = (FOLDER / "versions").glob("[0-9]*.py")
    return tuple(sorted(file.name.partition("_")[0] for file in files))


def revision_of(connection: Connection) -> str | None:
    """The revision of a database; None if it has never been migrated."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    return found


def require_current(found: str | None, database: str) -> None:
    """Raise a ConfigError that says what to do, unless the database has exactly the schema that this version needs."""
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
