"""The program's own table. An upload writes its row and the event of its pipeline in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from doorstep import Pipeline, Sql
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.schemas.pipelines import Entity


def table(sql: Sql) -> list[str]:
    """The statement that creates the table."""
    now = "now()" if sql.database == "postgresql" else "CURRENT_TIMESTAMP"
    columns = f"protocol_id text PRIMARY KEY, text text NOT NULL, uploaded_at timestamp NOT NULL DEFAULT {now}"
    return [f"CREATE TABLE IF NOT EXISTS protocol_documents ({columns})"]


class Documents:
    """The documents, in the database that Doorstep uses."""

    def __init__(self, database_url: Callable[[], str]) -> None:
        self._database_url = database_url

    def upload(self, pipeline: Pipeline, protocol_id: str, text: str) -> Entity:
        """Add a document and start it. Both happen, or neither."""
        _check(text)
        with self._transaction() as execute, _refusing_duplicates(protocol_id):
            execute("INSERT INTO protocol_documents (protocol_id, text) VALUES (%s, %s)", protocol_id, text)
            return pipeline.start_sync({}, protocol_id, connection=execute.connection)

    def replace(self, protocol_id: str, text: str) -> None:
        _check(text)
        with self._transaction() as execute:
            changed = execute("UPDATE protocol_documents SET text = %s WHERE protocol_id = %s", text, protocol_id)
            if changed.rowcount == 0:
                raise NotFound(f"no protocol {protocol_id}")

    def delete(self, protocol_id: str) -> None:
        with self._transaction() as execute:
            execute("DELETE FROM protocol_documents WHERE protocol_id = %s", protocol_id)

    def text(self, protocol_id: str) -> str:
        with self._transaction() as execute:
            row = execute("SELECT text FROM protocol_documents WHERE protocol_id = %s", protocol_id).fetchone()
        if row is None:
            raise LookupError(f"no document for {protocol_id}")
        return str(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[_Execute]:
        """Commits, unless there is an exception."""
        url, _, schema = self._database_url().partition("?schema=")
        if url.startswith("sqlite"):
            opened: Any = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
        else:
            opened = psycopg.connect(url, options=f"-c search_path={schema or 'public'}")
        with closing(opened), opened:
            yield _Execute(opened)


def _check(text: str) -> None:
    if "\0" in text:
        raise InvalidInput("text", "must not contain the character U+0000, which PostgreSQL cannot store")


class _Execute:
    """Runs statements on a connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def __call__(self, statement: str, *values: object) -> Any:
        if isinstance(self.connection, sqlite3.Connection):
            statement = statement.replace("%s", "?")
        return self.connection.execute(statement, values)


@contextmanager
def _refusing_duplicates(protocol_id: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.IntegrityError, psycopg.errors.UniqueViolation):
        raise Conflict(f"protocol {protocol_id} already exists") from None
