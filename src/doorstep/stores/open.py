"""Creates the store for a database URL. Each kind of store is imported only when it is used."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from doorstep.errors import ConfigError, MissingExtra
from doorstep.stores.store import Store

if TYPE_CHECKING:
    from doorstep.stores.sql.postgres import PostgresStore

_POSTGRESQL = ("postgresql", "postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def store_from_url(url: str) -> Store:
    """The store for a URL, not yet opened: `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://…`,
    `dynamodb://TABLE?region=…&queue=…` or `memory://`. A `memory://` store loses its data when it is closed.

    `postgresql://…?schema=name` keeps the tables in that schema of the database. Migrating creates the schema if it
    does not exist.
    """
    scheme = urlsplit(url).scheme
    match scheme:
        case "sqlite":
            from doorstep.stores.sql.sqlite.store import SqliteStore

            return SqliteStore(sqlite_path(url) or "")
        case scheme if scheme in _POSTGRESQL:
            return _postgres(url)
        case "memory":
            from doorstep.stores.sql.sqlite.memory_store import MemoryStore

            return MemoryStore()
        case "dynamodb":
            return _dynamodb(url)
    raise ConfigError(
        "the database URL must begin with sqlite:///, postgresql://, dynamodb:// or memory://, got"
        f" {scheme or url!r}; change it"
    )


async def grant_users(url: str, role: str) -> None:
    """Let the members of a database role read, and act, with SQL. Only PostgreSQL has roles."""
    scheme = urlsplit(url).scheme
    if scheme not in _POSTGRESQL:
        raise ConfigError(
            f"only PostgreSQL has roles for database users, got {scheme or url!r}; leave --grant-users out"
        )
    await _postgres(url).grant_users(role)


def sqlite_path(url: str) -> str | None:
    """The file path in a SQLite URL; None for the URL of another store."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        return None
    if parts.netloc or not parts.path.removeprefix("/"):
        raise ConfigError(
            f"a SQLite URL is sqlite:///relative.db or sqlite:////absolute.db, got {url!r}; count the slashes"
        )
    return unquote(parts.path.removeprefix("/"))


def _postgres(url: str) -> PostgresStore:
    if find_spec("asyncpg") is None:
        raise MissingExtra("PostgreSQL", "postgres")
    from doorstep.stores.sql.postgres import CONNECTIONS_READY, PostgresStore

    plain, schema = _split_schema(url)
    return PostgresStore(plain, schema=schema, connections_ready=CONNECTIONS_READY)


def _dynamodb(url: str) -> Store:
    if find_spec("botocore") is None:
        raise MissingExtra("DynamoDB", "aws")
    from doorstep.stores.dynamodb.store import DynamoStore

    return DynamoStore(url)


def _split_schema(url: str) -> tuple[str, str | None]:
    """The URL to pass to the driver, without the `schema` parameter, and the value of that parameter."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    schemas = [value for name, value in query if name == "schema"]
    if not schemas:
        return url, None
    if len(schemas) > 1 or not _SCHEMA.fullmatch(schemas[0]):
        raise ConfigError(
            "database_url: schema must be one name of at most 63 lower-case letters, digits and _, not starting with a"
            f" digit, got {', '.join(schemas)!r}; change it"
        )
    others = urlencode([(name, value) for name, value in query if name != "schema"])
    return urlunsplit(parts._replace(query=others)), schemas[0]
