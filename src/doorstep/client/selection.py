"""Which deliveries a bulk operation is about, said explicitly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from doorstep.client.call import Id, given


@dataclass(frozen=True, slots=True)
class Selection:
    """Made by `of`, `where` or `everything`: nothing is ever selected by leaving something out."""

    body: Mapping[str, object]

    @classmethod
    def of(cls, delivery_ids: Iterable[Id]) -> Selection:
        """These deliveries, up to 1,000."""
        return cls({"delivery_ids": [str(delivery_id) for delivery_id in delivery_ids]})

    @classmethod
    def where(cls, **filters: Any) -> Selection:
        """All that match, by the names that `page` of the same queue knows."""
        return cls({"filter": {name: _plain(value) for name, value in given(filters).items()}})

    @classmethod
    def everything(cls) -> Selection:
        """All of them."""
        return cls({"all": True})


def _plain(value: Any) -> object:
    return value if isinstance(value, str | int | float | bool) else _text(value)


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
