"""The arguments of a Python handler: the event, its payload as an instance of the program's own type, or both.

A parameter without an annotation, or annotated `Received`, takes the event. A parameter with any other annotation takes
the payload, decoded into that type. The signature is examined once, when the handler is declared.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, get_args

from doorstep.errors import ConfigError
from doorstep.payloads import check_type, decoded
from doorstep.transports.handler_replies import Received

_ONE_OF_EACH = "must take the event, or the payload as an annotated parameter such as `order: Order`, or one of each"
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_EVENT = None
"""Marks a parameter that takes the event. All others are described by the type of the payload."""


class Parameters(NamedTuple):
    """What to pass to a handler: for each parameter, the type of the payload, or None for the event."""

    positional: tuple[Any, ...]
    keywords: dict[str, Any]

    def arguments(self, given: Received) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of one attempt. Raises `Permanent` if the payload does not match its type."""
        positional = [given if kind is _EVENT else decoded(given.payload, kind) for kind in self.positional]
        keywords = {n: given if kind is _EVENT else decoded(given.payload, kind) for n, kind in self.keywords.items()}
        return positional, keywords


_EVENT_ALONE = Parameters((_EVENT,), {})


def called(function: Callable[..., object], given: Received) -> object:
    """Call a handler with its arguments."""
    parameters = parameters_of(function)
    if parameters is _EVENT_ALONE:
        return function(given)
    positional, keywords = parameters.arguments(given)
    return function(*positional, **keywords)


def is_async(function: Callable[..., object]) -> bool:
    """Whether the function, or the `__call__` of a callable object, is async."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def check_parameters(what: str, function: Callable[..., object]) -> None:
    """Raise ConfigError for a handler that could not be called with an event and its payload."""
    try:
        _parameters_of(function)
    except (TypeError, NameError) as error:
        raise ConfigError(f"{what} {error}") from None


def parameters_of(function: Callable[..., object]) -> Parameters:
    """What a handler takes. The event alone, if its signature cannot be examined."""
    try:
        return _kept(function)
    except TypeError:  # a callable object that cannot be hashed
        return _parameters_of(function)


def _parameters_of(function: Callable[..., object]) -> Parameters:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have no signature
        return _EVENT_ALONE
    required = [one for one in signature.parameters.values() if _is_filled(one)]
    if not required and any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in signature.parameters.values()):
        return _EVENT_ALONE
    required = required or _first_optional(signature)
    kinds = {one.name: _kind_of(one, function) for one in required}
    if list(kinds.values()) == [_EVENT] and required[0].kind is not inspect.Parameter.KEYWORD_ONLY:
        return _EVENT_ALONE
    events = sum(kind is _EVENT for kind in kinds.values())
    if not kinds or events > 1 or len(kinds) - events > 1:
        raise TypeError(f"{_ONE_OF_EACH}, got {signature}")
    by_keyword = [one.name for one in required if one.kind is inspect.Parameter.KEYWORD_ONLY]
    return Parameters(
        tuple(kind for name, kind in kinds.items() if name not in by_keyword),
        {name: kinds[name] for name in by_keyword},
    )


_kept = lru_cache(1_024)(_parameters_of)


def _is_filled(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty and parameter.kind not in _VARIADIC


def _first_optional(signature: inspect.Signature) -> list[inspect.Parameter]:
    """The first parameter, even if it has a default value, because a handler is called with something."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one for one in signature.parameters.values() if one.kind in positional][:1]


def _kind_of(parameter: inspect.Parameter, function: Callable[..., object]) -> Any:
    """The type of the payload that a parameter takes, or None for the event."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        if annotation.rpartition(".")[2].strip("'\"") == Received.__name__:  # perhaps imported for type checkers only
            return _EVENT
        annotation = _resolved(parameter.name, annotation, function)
    if annotation in (inspect.Parameter.empty, Any, object) or isinstance(annotation, TypeVar):
        return _EVENT
    if annotation is None:
        raise TypeError(f"has a parameter {parameter.name!r} annotated None; annotate it with the type of the payload")
    if Received in (annotation, *get_args(annotation)):
        return _EVENT
    try:
        check_type(annotation)
    except TypeError as error:
        raise TypeError(f"has a parameter {parameter.name!r} of a type that it cannot have: {error}") from None
    return annotation


def _resolved(name: str, annotation: str, function: Any) -> Any:
    """The type that an annotation names, in the module of the function."""
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, _globals_of(function), include_extras=True)["it"]
    except Exception as error:  # noqa: BLE001  an annotation may be any expression
        raise TypeError(
            f"has a parameter {name!r} whose annotation {annotation!r} cannot be read ({error}); define that type at the"
            " top of a module, before the handler, and not only for type checkers"
        ) from None


def _globals_of(function: Any) -> dict[str, Any]:
    """The names that the annotations of a function, a method, a partial or a callable object may use."""
    inner = inspect.unwrap(getattr(function, "func", function))
    if not hasattr(inner, "__globals__"):
        inner = inspect.unwrap(getattr(inner, "__func__", None) or type(inner).__call__)
    return getattr(inner, "__globals__", {})
