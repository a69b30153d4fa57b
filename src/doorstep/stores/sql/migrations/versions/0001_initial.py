"""The initial schema: everything that `stores/sql/schema` declares.

Nothing has been released, so no database has to be brought here from an older schema. A later revision must not change
what this one creates: whoever adds it first writes the statements of `schema_ddl` down here as they are then.
"""

from __future__ import annotations

from alembic.operations import Operations

from doorstep.stores.sql.ddl import schema_ddl

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    connection = op.get_bind()
    for statement in schema_ddl(connection.dialect.name):
        connection.exec_driver_sql(statement)
