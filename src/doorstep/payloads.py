"""Converts payloads to JSON and from JSON: pydantic models, dataclasses, TypedDicts, msgspec structs and plain values.

pydantic is never imported here. Its models are recognized by their attributes, and a program that has one has loaded
the library.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar, get_args

import msgspec

from doorstep.errors import Permanent
from doorstep.finite import check_finite
from doorstep.model.attempt import Code

T = TypeVar("T")

# -- to JSON ---------------------------------------------------------------------------------------------------


def json_of(value: object) -> bytes:
    """The value as JSON. Bytes are returned unchanged.

    pydantic models are written under the aliases of their fields, as FastAPI does, because they are also read under
    them. Raises TypeError or ValueError for a value that JSON cannot express, such as NaN.
    """
    if isinstance(value, bytes):
        return value
    if _is_pydantic_class(type(value)):
        encoded = _written_by_pydantic(value)
    else:
        encoded = msgspec.json.encode(value, enc_hook=_plain_value)
    check_finite(value, encoded, _read_by_pydantic)
    return encoded


def _read_by_pydantic(value: Any) -> object:
    """A pydantic model as plain data."""
    return type(value).__pydantic_serializer__.to_python(value, mode="json")


def _written_by_pydantic(value: Any) -> bytes:
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json(by_alias=True)).encode()
    return bytes(type(value).__pydantic_serializer__.to_json(value, by_alias=True))


def _plain_value(value: object) -> object:
    """Called by msgspec for a value inside another that it cannot write itself."""
    if _is_pydantic_class(type(value)):
        return msgspec.Raw(_written_by_pydantic(value))
    raise TypeError(f"a {type(value).__qualname__} cannot be written as JSON")


def _is_pydantic_class(kind: object) -> bool:
    """Whether this is a pydantic model or a pydantic dataclass."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


# -- from JSON -------------------------------------------------------------------------------------------------


def decoded(payload: bytes, kind: Any) -> Any:
    """The payload as an instance of a type.

    A payload that does not match raises `Permanent("INVALID_FORMAT", …)`, because a retry would not help. A type that
    nothing can be decoded into raises TypeError, because that is a mistake in the program.
    """
    return _decoder(kind)(payload)


def check_type(kind: Any) -> None:
    """Raise TypeError for a type that no payload can be decoded into."""
    _decoder(kind)


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    try:
        return _kept_decoder(kind)
    except TypeError:  # the type cannot be hashed, or the error is repeated here
        return _new_decoder(kind)


def _new_decoder(kind: Any) -> Callable[[bytes], Any]:
    if kind is bytes:
        return bytes  # exactly the bytes that were sent
    if any(map(_is_pydantic_class, _parts(kind))):
        return _pydantic_decoder(kind)
    _check_classes(kind)
    return _msgspec_decoder(kind)


_kept_decoder = lru_cache(512)(_new_decoder)


def _parts(kind: Any) -> Iterator[Any]:
    """The type and its arguments: `Order` in `list[Order]` and in `Order | None`."""
    yield kind
    for argument in get_args(kind):
        yield from _parts(argument)


def _mismatch(kind: Any, complaints: Iterable[str]) -> Permanent:
    """The error for a payload of another form, as one sentence that does not quote it."""
    return Permanent(Code.INVALID_FORMAT, f"The payload does not match {name_of(kind)}: {'; '.join(complaints)}.")


_MODULES = re.compile(r"(?:[\w<>]+\.)+(?=\w)")
"""Matches the module in `shop.models.Order | None`."""


def name_of(kind: Any) -> str:
    """The name of a type for people, without modules."""
    if hasattr(kind, "__metadata__"):
        return name_of(kind.__origin__)
    return kind.__name__ if inspect.isclass(kind) and not get_args(kind) else _MODULES.sub("", str(kind))


def _at(path: str, complaint: str) -> str:
    complaint = complaint[:1].lower() + complaint[1:]
    return f"{path}: {complaint}" if path else complaint


# -- msgspec: dataclasses, TypedDicts, structs and plain values ------------------------------------------------

_WHERE = re.compile(r"(?s)(.*) - at `\$?\.?(.*)`")
_QUOTING = re.compile(r"(Invalid [a-z ]*value) .*", re.DOTALL)
"""Matches a message of msgspec that quotes a value, because payload values must not appear in reasons."""


def _msgspec_decoder(kind: Any) -> Callable[[bytes], Any]:
    decoder = msgspec.json.Decoder(kind, dec_hook=_nested)

    def decode(payload: bytes) -> Any:
        try:
            return decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise _mismatch(kind, [_said_by_msgspec(str(error))]) from None

    return decode


def _said_by_msgspec(message: str) -> str:
    placed = _WHERE.fullmatch(message)
    complaint, path = (placed[1], placed[2]) if placed else (message, "")
    return _at(path, _QUOTING.sub(r"\1", complaint))


def _nested(kind: Any, value: object) -> Any:
    """Called by msgspec for a pydantic model inside another type."""
    try:
        return _adapter(kind).validate_python(value)
    except ValueError as error:
        if not _is_validation_error(error):
            raise
        raise ValueError("; ".join(_said_by_pydantic(error, _adapter(kind)))) from None


def _check_classes(kind: Any) -> None:
    """Raise TypeError for a class that msgspec would accept but never fill, such as one with its own `__init__`."""
    try:
        information = msgspec.inspect.type_info(kind)
    except NameError as error:
        raise TypeError(f"{name_of(kind)} cannot be used yet: {error}; define that before it is used") from None
    for found in _custom_types(information, set()):
        if not _is_pydantic_class(found):
            raise TypeError(
                f"no payload can be decoded into {name_of(found)}; use a pydantic model, a dataclass, a TypedDict or a"
                " msgspec struct"
            )


def _custom_types(node: Any, seen: set[int]) -> Iterator[Any]:
    """The classes that msgspec does not know, anywhere in a description of a type."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, msgspec.inspect.CustomType):
        yield node.cls
    elif isinstance(node, msgspec.Struct):
        for name in node.__struct_fields__:
            yield from _custom_types(getattr(node, name), seen)
    elif isinstance(node, tuple):
        for one in node:
            yield from _custom_types(one, seen)


# -- pydantic --------------------------------------------------------------------------------------------------


def _pydantic_decoder(kind: Any) -> Callable[[bytes], Any]:
    adapter = _adapter(kind)

    def decode(payload: bytes) -> Any:
        try:
            return adapter.validate_json(payload)
        except ValueError as error:
            if not _is_validation_error(error):
                raise  # a validator of the program has failed
            raise _mismatch(kind, _said_by_pydantic(error, adapter)) from None

    return decode


@lru_cache(512)
def _adapter(kind: Any) -> Any:
    pydantic: Any = sys.modules["pydantic"]
    try:
        adapter = pydantic.TypeAdapter(kind)
        adapter.rebuild()  # a model that refers to a class that does not exist yet is only half built
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"{name_of(kind)} cannot be used: {error.message}") from None
    return adapter


def _is_validation_error(error: Any) -> bool:
    return isinstance(error, sys.modules["pydantic"].ValidationError)


_COMPLAINTS_MAX = 5
_TAG = re.compile(r"^Input tag .* found using", re.DOTALL)
_FOUND = re.compile(r",? (?:found|invalid character|unexpected).*", re.DOTALL)


def _said_by_pydantic(error: Any, adapter: Any) -> list[str]:
    """One complaint for each wrong field. Neither values nor the keys of mappings are quoted."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    known = _field_names(adapter)
    said = [_at(_path(one["loc"], known), _unquoted(one["type"], one["msg"])) for one in errors[:_COMPLAINTS_MAX]]
    more = len(errors) - len(said)
    return [*said, f"and {more} more"] if more else said


def _unquoted(kind: str, message: str) -> str:
    if kind == "union_tag_invalid":
        return _TAG.sub("The tag found using", message)
    return _FOUND.sub("", message) if kind.endswith("_parsing") else message


def _path(location: Iterable[object], known: frozenset[str]) -> str:
    """The place of a value, such as `items[0].sku`. A part that the type does not name comes from the payload."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part in known:
            path += f".{part}"
        else:
            path += "[...]"
    return path.removeprefix(".")


def _field_names(adapter: Any) -> frozenset[str]:
    try:
        return frozenset(_names_in(adapter.json_schema()))
    except ValueError:  # PydanticInvalidForJsonSchema: not every type has a JSON schema
        return frozenset()


def _names_in(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for name in ("properties", "$defs"):
            yield from schema.get(name, ())
        for one in schema.values():
            yield from _names_in(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from _names_in(one)
