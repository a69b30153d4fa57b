"""The store for many machines. `store` has its verbs in order, `connections` what errors and restarts mean."""

from doorstep.stores.sql.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
