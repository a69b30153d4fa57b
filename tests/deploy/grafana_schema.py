"""Checks a dashboard against Grafana's own schema, using the classes that Grafana generates from it.

These classes read leniently: they drop unknown fields and do not check values. So this module writes the dashboard
again to see which fields were dropped, and compares each value with the type that its class declares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()
_PACKAGE = "grafana_foundation_sdk."


def misfits(dashboard: dict[str, Any]) -> list[str]:
    """Every place in the dashboard that Grafana would not understand; none for a valid dashboard."""
    return list(_misread(dashboard, Dashboard, ""))


def _misread(given: dict[str, Any], kind: Any, where: str) -> Iterator[str]:
    read = kind.from_json(given)
    yield from _left_out(given, json.loads(JSONEncoder().encode(read)), where)
    yield from _wrong(read, kind, where)


def _left_out(given: Any, kept: Any, where: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            yield from (
                _left_out(value, kept[name], f"{where}.{name}") if name in kept else [f"{where}.{name} is unknown"]
            )
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for place, pair in enumerate(zip(given, kept, strict=True)):
            yield from _left_out(*pair, f"{where}[{place}]")
    elif given != kept:
        yield f"{where} is {given!r}, and was understood as {kept!r}"


def _wrong(value: Any, kind: Any, where: str) -> Iterator[str]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        yield from min(
            (list(_wrong(value, one, where)) for one in arguments if one is not type(None) or value is None), key=len
        )
    elif origin is list and isinstance(value, list):
        for place, one in enumerate(value):
            yield from _wrong(one, arguments[0], f"{where}[{place}]")
    elif origin is dict and isinstance(value, dict):
        for name, one in value.items():
            yield from _wrong(one, arguments[1], f"{where}.{name}")
    elif type(value).__module__.startswith(_PACKAGE) and not isinstance(value, Enum):
        for name, one in get_type_hints(type(value), vars(sys.modules[type(value).__module__])).items():
            yield from _wrong(getattr(value, name), one, f"{where}.{name}")
    elif isinstance(value, dict) and getattr(kind, "__module__", "").startswith(_PACKAGE):
        yield from _misread(value, kind, where)  # the classes leave some values unparsed
    elif not _fits(value, kind):
        yield f"{where} is {value!r}, which is no {kind}"


def _fits(value: Any, kind: Any) -> bool:
    if kind in (Any, object):
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if not isinstance(kind, type):
        return False
    if issubclass(kind, Enum):
        return value in [one.value for one in kind] or isinstance(value, kind)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
