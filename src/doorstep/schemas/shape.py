"""What all shapes share: strictness, times, choices, pages and problems."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeAlias, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")

Time: TypeAlias = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""ISO 8601 on the wire; answers have it in UTC with microseconds and a Z. As a value it is an aware datetime."""
Reason: TypeAlias = Annotated[str, msgspec.Meta(max_length=500)]
"""Why someone does something, in their own words; kept in the audit log."""
Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=200)]
Cursor: TypeAlias = Annotated[str, msgspec.Meta(max_length=500)]
EventTypePattern: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]
"""An event type, or a pattern whose final `*` stands for any rest."""


def choice(*values: str) -> Any:
    """Meta for a text in an answer that is one of these.

    A client takes others as well, so that an old client understands a newer server.
    """
    return msgspec.Meta(extra_json_schema={"enum": list(values)})


def told(**rules: Any) -> Any:
    """Meta for rules that the OpenAPI document states; the engine enforces them, for every way in alike.

    The fuzz tests fail when what is stated and what is enforced differ, in either direction.
    """
    return msgspec.Meta(extra_json_schema=rules)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a route answers with. A client ignores fields that it does not know."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request. An unknown field is refused rather than ignored."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a request. An unknown one is refused: ignored, it would silently widen what is asked for."""


class ListQuery(Query, frozen=True, kw_only=True):
    """The parameters of every list."""

    limit: Limit = 50
    cursor: Cursor | None = None
    """Where the last page ended, as its answer said."""


class Pagination(Answer, frozen=True):
    """`cursor` asks for the next page. A page may be short, even empty, and still have a next one."""

    limit: int
    cursor: str | None
    has_more: bool

    @property
    def total_count(self) -> int | None:
        """How many there are in all; None where counting would not be cheap."""
        return None

    @property
    def total_is_floor(self) -> bool:
        """Whether there may be more than `total_count`."""
        return False


class CountedPagination(Pagination, frozen=True):
    """With the number of all there are. Counting stops at 10,000: then it is only a floor, and says so."""

    total_count: int
    total_is_floor: bool


class Listing(Answer, Generic[T], frozen=True):
    """One page of a list, under the name of what it lists."""

    @property
    def listed(self) -> tuple[T, ...]:
        """The items, whatever their list is called: its first field."""
        items: tuple[T, ...] = getattr(self, self.__struct_fields__[0])
        return items

    @property
    def position(self) -> Pagination:
        """Where this page stands in its list: its last field."""
        found: Pagination = getattr(self, self.__struct_fields__[-1])
        return found


class Figures(Answer, frozen=True):
    """Numbers by their names; `figures["created"]` reads the same as `figures.created`."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def keys(self) -> tuple[str, ...]:
        return self.__struct_fields__

    def items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__]


class FieldProblem(Answer, frozen=True):
    """What is wrong with one field of the request."""

    field: str
    message: str


class Problem(Answer, frozen=True):
    """The body of a refusal, as `application/problem+json` has it."""

    status: int
    title: str
    detail: str = ""
    type: str = "about:blank"
    errors: tuple[FieldProblem, ...] = ()


class ReasonIn(Request, frozen=True):
    """Why."""

    reason: Reason = ""


Id: TypeAlias = UUID | str
"""How a caller may give an id."""
