"""The PostgreSQL store, which many machines can share. `store` contains its methods. `connections` handles errors and
reconnects."""

from doorstep.stores.sql.postgres.store import CONNECTIONS_READY, PostgresStore

__all__ = ["CONNECTIONS_READY", "PostgresStore"]
