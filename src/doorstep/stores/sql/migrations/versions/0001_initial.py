"""The initial schema: everything that `stores/sql/schema.py` declares.

Nothing has been released, so no older schema has to be upgraded. Later changes to schema.py must not change what this
revision creates. So before adding a revision, replace the call of `schema_ddl` here with the statements that it returns
at that time.
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
