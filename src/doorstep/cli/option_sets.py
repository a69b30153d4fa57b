"""Options that belong together, written once as a NamedTuple and taken by any command that needs them.

A command with a parameter of such a type has all the options of its fields, and is handed them as one value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from inspect import Parameter
from typing import Any, get_type_hints


def spread(parameters: Iterable[Parameter]) -> Iterator[Parameter]:
    """The parameters with each set replaced by those of its fields."""
    for parameter in parameters:
        if is_set(parameter.annotation):
            yield from _fields(parameter.annotation)
        else:
            yield parameter.replace(kind=Parameter.KEYWORD_ONLY)


def gathered(parameters: Iterable[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for the spread parameters, with the sets put together again."""
    return {parameter.name: _value(parameter, given) for parameter in parameters}


def is_set(annotation: object) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, tuple) and hasattr(annotation, "_field_defaults")


def _value(parameter: Parameter, given: Mapping[str, Any]) -> Any:
    kind = parameter.annotation
    return kind(**{name: given[name] for name in kind._fields}) if is_set(kind) else given[parameter.name]


def _fields(kind: Any) -> Iterator[Parameter]:
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        default = kind._field_defaults.get(name, Parameter.empty)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
