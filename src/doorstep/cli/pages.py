"""Lists by pages: followed until there are as many rows as asked for, then shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from doorstep.cli.options import Cursor, Limit
from doorstep.cli.output import Column, Output

if TYPE_CHECKING:
    from doorstep.client import Page, Pagination

T = TypeVar("T")
PAGE_MAX = 200
"""The largest page that every list of the API gives."""


class Paging(NamedTuple):
    """How much of a list."""

    limit: Limit = 50
    cursor: Cursor = None


class Rows(Generic[T]):
    """Rows of one or more pages, and where the list goes on."""

    def __init__(self, items: list[T], pagination: Pagination) -> None:
        self.items = items
        self.pagination = pagination

    def show(self, output: Output, name: str, columns: Sequence[Column], empty: str) -> None:
        """As a table, or as the API gives a list: under its name, with its pagination."""
        output.listing({name: self.items, "pagination": self.pagination}, self.items, columns, empty)
        if self.pagination.has_more and self.items:
            output.note(f"{self._of_how_many()}; for more raise --limit, or add --cursor {self.pagination.cursor}")

    def _of_how_many(self) -> str:
        total = self.pagination.total_count
        if total is None:
            return f"The first {len(self.items)}"
        return f"{len(self.items)} of {'more than ' if self.pagination.total_is_floor else ''}{total}"


def gather(page: Callable[..., Page[T]], paging: Paging, **filters: Any) -> Rows[T]:
    """Up to `limit` rows of a list of the client. A page may be short, even empty, and still not be the last."""
    items: list[T] = []
    limit, cursor = paging
    total: int | None = None
    while True:
        got = page(limit=min(limit - len(items), PAGE_MAX), cursor=cursor, **filters)
        items += got.items
        cursor = got.pagination.cursor
        total = got.pagination.total_count if total is None else total
        if len(items) >= limit or not got.pagination.has_more:
            counted = {} if total is None else {"total_count": total}
            return Rows(items, msgspec.structs.replace(got.pagination, limit=limit, **counted))
