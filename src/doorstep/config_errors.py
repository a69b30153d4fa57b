"""How a wrong setting is refused: one sentence with its rule, what was seen, and where to change it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from doorstep.telemetry.redaction import shown_url

PREFIX = "DOORSTEP_"
TOML_FILE = "doorstep.toml"

Fields = Mapping[str, FieldInfo]
"""All settings by their names."""


def sentence(error: ErrorDetails, fields: Fields, arguments: Mapping[str, Any]) -> str:
    """For what pydantic found, in settings that were made with these arguments."""
    name = str(error["loc"][0])
    if name not in fields:
        return _unknown(name, set(fields), f"remove {_origin(name, arguments)}")
    seen = _shown(fields[name], _given(name, arguments, error["input"]))
    return f"{name} must be {rule(fields[name])}, got {seen}; change {_origin(name, arguments)}"


def unknown_variable(fields: Fields) -> str | None:
    """For the first variable that speaks to us and names no setting."""
    known = {variable(name) for name in fields}
    strangers = sorted(_environment().keys() - known)
    return _unknown(strangers[0], known, "unset it") if strangers else None


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def rule(field: FieldInfo) -> str:
    """What completes the sentence "<name> must be …"."""
    extra = field.json_schema_extra
    return str(extra["rule"]) if isinstance(extra, dict) else ""


def _unknown(name: str, known: set[str], remedy: str) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"{name} is not a setting; {f'did you mean {close[0]}? Otherwise ' if close else ''}{remedy}"


def _given(name: str, arguments: Mapping[str, Any], seen: object) -> object:
    """The whole value as the user wrote it, rather than the part of it that pydantic stumbled over."""
    return arguments[name] if name in arguments else _environment().get(variable(name)) or seen


def _shown(field: FieldInfo, value: object) -> str:
    """Secrets are never shown, nor what a URL has of a user, a password or a query."""
    if field.annotation == SecretStr | None:
        return "something else"
    return repr(shown_url(value)) if isinstance(value, str) and "://" in value else repr(value)


def _origin(name: str, arguments: Mapping[str, Any]) -> str:
    if name in arguments:
        return f"the argument {name}"
    return variable(name) if _environment().get(variable(name)) else f"the line {name} in {TOML_FILE}"


def _environment() -> dict[str, str]:
    """The variables that speak to us. Their case is ignored, as pydantic-settings does."""
    return {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}
