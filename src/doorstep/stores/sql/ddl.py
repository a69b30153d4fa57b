"""The whole schema of a database as statements, made from the tables in `schema/`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from doorstep.stores.sql.schema import MARKS, marks, metadata, outbox_ddl, trigger_ddl

_DIALECTS = {"sqlite": sqlite.dialect, "postgresql": postgresql.dialect}


@cache
def schema_ddl(dialect: str) -> tuple[str, ...]:
    """What creates the schema in an empty database, in order, for `sqlite` or `postgresql`.

    Compiling it takes 20 ms of CPU, so a process does it once.
    """
    return (
        *_table_ddl(dialect),
        *(f"INSERT INTO {marks.name} (name, value) VALUES ('{mark}', 0)" for mark in MARKS),
        *trigger_ddl(dialect),
        *outbox_ddl(dialect),
        *_only_on_postgres(dialect),
    )


def _table_ddl(dialect: str) -> Iterator[str]:
    compiler = _DIALECTS[dialect]()
    for table in metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=compiler)).strip()
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=compiler))


def _only_on_postgres(dialect: str) -> list[str]:
    if dialect != "postgresql":
        return []
    from doorstep.stores.sql.postgres_ddl import postgres_ddl

    return postgres_ddl()
