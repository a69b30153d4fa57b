"""Alembic, run from inside the package: no alembic.ini, no env.py, no global state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection


def run_to_head(connection: Connection, folder: Path, version_table: str) -> None:
    """Run every revision that the database does not have yet, in the transaction that `connection` is in."""
    scripts = ScriptDirectory(str(folder))

    def steps(revision: Any, context: MigrationContext) -> Any:
        return scripts._upgrade_revs("head", revision)  # as Alembic's own recipes for programmatic upgrades do

    options = {"version_table": version_table, "transactional_ddl": True, "fn": steps}
    context = MigrationContext.configure(connection, opts=options)
    context.run_migrations(op=Operations(context))
