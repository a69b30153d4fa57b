"""The basis of all shapes: strictness, times, choices, pages and problems."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeAlias, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")

Time: TypeAlias = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""In JSON, text in ISO 8601 format; responses always use UTC with microseconds and a Z. In Python, an aware
datetime."""
OlderName: TypeAlias = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time", "deprecated": True})]
"""A time under the name that a field had before all lists had `since` and `until`."""
OLDER_NAMES = {"since": ("created_from", "died_from"), "until": ("created_before", "died_before")}
Reason: TypeAlias = Annotated[str, msgspec.Meta(max_length=500)]
"""The reason for an action, in the words of its actor; kept in the audit log."""
Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=200)]
Cursor: TypeAlias = Annotated[str, msgspec.Meta(max_length=500)]
EventTypePattern: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]
"""An event type, or a pattern whose final `*` matches any ending."""


def choice(*values: str) -> Any:
    """A msgspec Meta for a text field of a response. The value of the field is one of `values`.

    Clients accept other values too, so that an old client can read the responses of a newer server.
    """
    return msgspec.Meta(extra_json_schema={"enum": list(values)})


def stated(**rules: Any) -> Any:
    """A msgspec Meta for rules that are stated in the OpenAPI document. The engine, not msgspec, enforces them for all
    callers.

    The fuzz tests fail if the stated rules are stricter or looser than the enforced ones.
    """
    return msgspec.Meta(extra_json_schema=rules)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The response of a route. A client ignores unknown fields."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request. An unknown field is an error."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query parameters of a request. An unknown parameter is an error, because ignoring it would silently widen the
    result."""


class ListQuery(Query, frozen=True, kw_only=True):
    """The parameters that every list accepts."""

    limit: Limit = 50
    cursor: Cursor | None = None
    """The `cursor` of the previous page."""


class Pagination(Answer, frozen=True):
    """`cursor` requests the next page. A page may have fewer items than `limit`, or even none, although another page
    follows."""

    limit: int
    cursor: str | None
    has_more: bool

    @property
    def total_count(self) -> int | None:
        """The total number; None if counting would be expensive."""
        return None

    @property
    def total_is_floor(self) -> bool:
        """Whether `total_count` is only a lower bound."""
        return False


class CountedPagination(Pagination, frozen=True):
    """Pagination with the total number of items. Counting stops at 10,000. Beyond that, the number is a lower bound,
    and `total_is_floor` is true."""

    total_count: int
    total_is_floor: bool


class Listing(Answer, Generic[T], frozen=True, kw_only=True):
    """One page of a list. A subclass adds the field with the items, which is encoded first."""

    pagination: Pagination

    @property
    def listed(self) -> tuple[T, ...]:
        """The items."""
        items: tuple[T, ...] = getattr(self, self.__struct_fields__[0])
        return items


class CountedListing(Listing[T], Generic[T], frozen=True, kw_only=True):
    """One page of a list, with the total number of items."""

    pagination: CountedPagination


class Figures(Answer, frozen=True):
    """Numbers by name; `figures["created"]` is the same as `figures.created`."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def keys(self) -> tuple[str, ...]:
        return self.__struct_fields__

    def items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__]


class FieldProblem(Answer, frozen=True):
    """An error in one field of a request."""

    field: str
    message: str


class Problem(Answer, frozen=True):
    """The body of an error response: `application/problem+json`."""

    status: int
    title: str
    detail: str = ""
    type: str = "about:blank"
    errors: tuple[FieldProblem, ...] = ()


class ReasonIn(Request, frozen=True):
    """The reason for an action."""

    reason: Reason = ""


Id: TypeAlias = UUID | str
"""An id as callers may pass it."""
