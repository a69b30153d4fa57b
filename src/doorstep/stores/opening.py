"""Which store a database URL means. Each store is imported only when it is asked for."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from doorstep.errors import ConfigError
from doorstep.stores.store import Store


def store_from_url(url: str) -> Store:
    """The store of a URL, not yet opened: `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://…`,
    or `memory://`, which forgets everything at the end of the process."""
    scheme = urlsplit(url).scheme
    match scheme:
        case "sqlite":
            return _sqlite(url)
        case "postgresql" | "postgres":
            return _postgres(url)
        case "memory":
            from doorstep.stores.memory import MemoryStore

            return MemoryStore()
    raise ConfigError(
        f"the database URL must begin with sqlite:///, postgresql:// or memory://, got {scheme or url!r}; change it"
    )


def sqlite_path(url: str) -> str | None:
    """The file that a SQLite URL names; None for the URL of another store."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        return None
    if parts.netloc or not parts.path.removeprefix("/"):
        raise ConfigError(
            f"a SQLite URL is sqlite:///relative.db or sqlite:////absolute.db, got {url!r}; count the slashes"
        )
    return unquote(parts.path.removeprefix("/"))


def _sqlite(url: str) -> Store:
    from doorstep.stores.sql.sqlite.store import SqliteStore

    return SqliteStore(sqlite_path(url) or "")


def _postgres(url: str) -> Store:
    if find_spec("asyncpg") is None:
        raise ConfigError("PostgreSQL needs an extra package; install it with pip install 'doorstep[postgres]'")
    from doorstep.stores.sql.postgres import CONNECTIONS_READY, PostgresStore

    return PostgresStore(url, connections_ready=CONNECTIONS_READY)
