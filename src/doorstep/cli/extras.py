"""Which extra installs a module: read from the metadata of the package, so that extras are declared only once."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+).*;.*\bextra == ['\"](?P<extra>[\w-]+)['\"]")


def extra_of(error: BaseException) -> str | None:
    """The extra that contains the module whose import failed. None if the error has another cause."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    root = error.name.partition(".")[0]
    found = (_REQUIREMENT.match(line) for line in _requirements())
    return next((it["extra"] for it in found if it and _module(it["name"]) == root), None)


def _requirements() -> list[str]:
    try:
        return requires("doorstep") or []
    except PackageNotFoundError:  # a copy of the sources that is not installed
        return []


def _module(name: str) -> str:
    """The module of a package. For OpenTelemetry, that is the part before the first dash."""
    return "opentelemetry" if name.startswith("opentelemetry-") else name.replace("-", "_").lower()
