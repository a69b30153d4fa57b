"""A separate database for each measurement: a SQLite file, or a database of a throwaway PostgreSQL server (fsync on)."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal, Self
from uuid import UUID

from doorstep.model.record import uuid7
from tests.support.postgres_server import PostgresServer

StoreName = Literal["sqlite", "postgres"]


_OPTIONS = ["max_wal_size=4GB", "shared_buffers=256MB", "wal_init_zero=off"]
"""A new server fills each segment of its log with zeros before it uses it; one that has run for a while uses old
segments again. Without the last option, a slice that begins a segment writes 40 to 120 KB more per event."""


@dataclass(frozen=True)
class Database:
    store: StoreName
    url: str
    path: Path
    """The SQLite file. For PostgreSQL, this is only a name."""
    server: PostgresServer | None = None

    def run(self, *statements: str) -> None:
        """Run SQL directly, to create in seconds what would take Doorstep minutes."""
        if self.server is not None:
            for statement in statements:
                self.server.sql(statement, database=self.path.name)
            return
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        connection.create_function("uuid7", 1, lambda at: uuid7(at).bytes)
        connection.create_function("uid_of", 1, lambda text: UUID(text).bytes)
        connection.create_function("text_of", 1, lambda uid: str(UUID(bytes=uid)))
        for statement in statements:
            connection.execute(statement)
        connection.close()

    def ask(self, question: str) -> list[tuple[int, ...]]:
        """The integers that a query returns."""
        if self.server is not None:
            lines = self.server.sql(question, database=self.path.name).splitlines()
            return [tuple(int(value) for value in line.split("|")) for line in lines]
        with sqlite3.connect(self.path) as connection:
            return list(connection.execute(question))

    def ids(self, question: str) -> list[UUID]:
        """The ids that a query returns."""
        if self.server is not None:
            return [UUID(line) for line in self.server.sql(question, database=self.path.name).splitlines()]
        with sqlite3.connect(self.path) as connection:
            return [UUID(bytes=uid) for (uid,) in connection.execute(question)]

    def server_cpu_seconds(self) -> float:
        return self.server.cpu_seconds() if self.server is not None else 0.0


class Databases:
    """Creates databases; starts the PostgreSQL server when it is first needed."""

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="doorstep-bench-"))
        self._server: PostgresServer | None = None
        self._numbers = count(1)
        self._prepared: set[tuple[StoreName, str]] = set()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.destroy()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def fresh(self, store: StoreName) -> Iterator[Database]:
        """An empty database, deleted afterwards."""
        database = self._create(store, f"bench_{next(self._numbers)}")
        yield database
        self._drop(database)

    @contextmanager
    def copy(self, store: StoreName, name: str, build: Callable[[Database], None]) -> Iterator[Database]:
        """A copy of the database `name`, deleted afterwards. `build` fills the original when it is first needed."""
        original = f"prepared_{name}"
        if (store, name) not in self._prepared:
            self._prepared.add((store, name))
            build(self._create(store, original))
        copied = f"bench_{next(self._numbers)}"
        if store == "postgres":
            self._running_server().create_database(copied, template=original)
        else:
            shutil.copytree(self._folder / original, self._folder / copied)
        yield self._database(store, copied)
        self._drop(self._database(store, copied))

    def _create(self, store: StoreName, name: str) -> Database:
        if store == "postgres":
            self._running_server().create_database(name)
        else:
            (self._folder / name).mkdir()
        return self._database(store, name)

    def _database(self, store: StoreName, name: str) -> Database:
        if store == "postgres":
            server = self._running_server()
            return Database(store, server.url(name), Path(name), server)
        path = self._folder / name / "doorstep.db"
        return Database(store, f"sqlite:///{path}", path)

    def _drop(self, database: Database) -> None:
        if database.server is not None:
            database.server.drop_database(database.path.name)
        else:
            shutil.rmtree(database.path.parent)

    def _running_server(self) -> PostgresServer:
        if self._server is None:
            self._server = PostgresServer(options=_OPTIONS).start()
        return self._server
