"""Search: what an id belongs to, and the fields that have an index."""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args
from typing import Literal as OneOf
from uuid import UUID

import msgspec

from doorstep.schemas.shape import Answer, Query, Request, Time, choice, stated

ItemKind: TypeAlias = OneOf["event", "delivery", "endpoint", "alert", "bulk"]
_KEY = r"[^.\s\x00-\x1f\x7f]{1,64}"
FieldName: TypeAlias = Annotated[
    str, stated(minLength=9, maxLength=200, pattern=rf"^(payload|metadata)(\.{_KEY}){{1,8}}$")
]
FieldValue: TypeAlias = Annotated[str, stated(minLength=1, maxLength=200)]
FIELD_PATH_RULES = {"maxLength": 191, "pattern": rf"^{_KEY}(\.{_KEY}){{0,7}}$"}
"""The rules for a path in the payload or in the metadata."""
ID_PATTERN = r"^\s*[0-9a-fA-F]{8}((-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12})?\s*$"


class FindQuery(Query, frozen=True, kw_only=True):
    """The id to look for."""

    id: Annotated[str, msgspec.Meta(max_length=100, extra_json_schema={"pattern": ID_PATTERN})]
    """A whole id, or its last eight digits."""


class FoundItem(Answer, frozen=True):
    """Something that has the id. `event_id` is the event of a delivery, otherwise null."""

    kind: Annotated[str, choice(*get_args(ItemKind))]
    item_id: UUID
    label: str
    event_id: UUID | None


class FoundItems(Answer, frozen=True):
    """Everything with the id; usually one thing."""

    items: tuple[FoundItem, ...]


class SearchFieldsIn(Request, frozen=True):
    """The fields, such as `payload.order.id` and `metadata.customer`."""

    fields: Annotated[tuple[FieldName, ...], stated(maxItems=8)]


class SearchField(Answer, frozen=True):
    """A field that has an index. Events that were accepted before `indexed_from` are searched one by one."""

    name: str
    indexed_from: Time


class SearchFields(Answer, frozen=True):
    """The fields that have an index."""

    fields: tuple[SearchField, ...]
