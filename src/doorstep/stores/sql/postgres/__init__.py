"""The store for many machines. `store` has its verbs in order, `connections` what errors and restarts mean."""

from doorstep.stores.sql.postgres.store import CONNECTIONS_READY, PostgresStore

__all__ = ["CONNECTIONS_READY", "PostgresStore"]
