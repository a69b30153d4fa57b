"""The schema's upgrades, run by Alembic from inside the package: no alembic.ini, no env.py, no global state.

`upgrade` brings a database to the newest revision; `require_current` refuses to work on any other. A revision is a
module in `versions/` whose `upgrade(op)` is handed its operations, so that two stores can migrate in one process.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from doorstep.errors import ConfigError

VERSION_TABLE = "doorstep_version"
"""Our own, because the program that embeds us may keep an `alembic_version` in the same database."""


def upgrade(connection: Connection) -> None:
    """Bring the schema to the newest revision, in the transaction that `connection` is in.

    Processes that upgrade at once must be kept apart by a lock that the caller holds until it commits.
    """
    options = {"version_table": VERSION_TABLE, "transactional_ddl": True, "fn": _steps_to_head}
    context = MigrationContext.configure(connection, opts=options)
    context.run_migrations(op=Operations(context))


def _steps_to_head(revision: Any, context: MigrationContext) -> Any:
    return _revisions()._upgrade_revs("head", revision)  # as Alembic's own recipes for programmatic upgrades do


@cache
def head() -> str:
    """The revision that this version of Doorstep works with."""
    newest = _revisions().get_current_head()
    assert newest is not None, "there is always a first revision"
    return newest


def revision_of(connection: Connection) -> str | None:
    """The revision that a database is at; None if it has never been migrated."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def require_current(found: str | None, database: str) -> None:
    """Refuse a database that is behind or ahead of this version of Doorstep, saying what to do."""
    if found == head():
        return
    if found is None:
        raise ConfigError(f"{database} has no Doorstep tables yet; run `doorstep migrate`")
    known = {script.revision for script in _revisions().walk_revisions()}
    if found in known:
        raise ConfigError(f"{database} is at schema {found}, this version needs {head()}; run `doorstep migrate`")
    raise ConfigError(
        f"{database} is at schema {found}, which this version does not know (it needs {head()});"
        " it was migrated by a newer Doorstep: install that version"
    )


def _revisions() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).parent))
