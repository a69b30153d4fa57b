"""The one row that a sender inserts, and the words for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import msgspec

from doorstep.errors import InvalidInput
from doorstep.model.outbox import OutboxMessage

TABLE = "doorstep_outbox"
COLUMNS = ("uid", "org_uid", "event_type", "payload", "options", "created_at")
SQLITE, POSTGRESQL = "sqlite", "postgresql"


class Slot(NamedTuple):
    """Where a store's outbox is."""

    dialect: str
    schema: str | None = None
    """On PostgreSQL; None for whichever schema of the connection's search path has the table."""


class Letter(NamedTuple):
    """A posting on its way into its slot, and whom to wake for it."""

    posting: OutboxMessage
    slot: Slot
    wake: Callable[[], None]

    def check_dialect(self, dialect: str) -> None:
        """Elsewhere it would never be found."""
        if dialect != self.slot.dialect:
            raise InvalidInput(
                "connection", f"must be one to the {self.slot.dialect} database of Doorstep, got one to {dialect}"
            )

    def statement(self, *marks: str) -> str:
        """The INSERT, with the six placeholders of a driver."""
        return _statement(self.slot.schema, marks)

    def values(self) -> tuple[object, ...]:
        """In the order of COLUMNS, with ids as the dialect keeps them."""
        values = values_of(self.posting)
        if self.slot.dialect == POSTGRESQL:
            return values
        return tuple(value.bytes if isinstance(value, UUID) else value for value in values)


def values_of(posting: OutboxMessage) -> tuple[object, ...]:
    """In the order of COLUMNS."""
    return (
        posting.event_id,
        posting.org_id,
        posting.event_type,
        posting.payload,
        msgspec.json.encode(posting.options).decode(),
        posting.created_at,
    )


@lru_cache
def _statement(schema: str | None, marks: tuple[str, ...]) -> str:
    table = TABLE if schema is None else f'"{schema}".{TABLE}'
    return f"INSERT INTO {table} ({', '.join(COLUMNS)}) VALUES ({', '.join(marks)})"
