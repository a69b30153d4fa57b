"""Templates, static files and the menu. Templates escape all text by default."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from doorstep import __version__
from doorstep.clock import moment, to_iso
from doorstep.console import formatting
from doorstep.errors import NotFound
from doorstep.model.action import REASON_CHARACTERS_MAX
from doorstep.operations.bulk import RATE_MAX, RATE_MIN
from doorstep.operations.endpoints import DRAIN_MAX, DRAIN_MIN

_FOLDER = Path(__file__).with_name("templates")
_FILTERS = ("instant", "ago", "lasting", "exactly", "spoken", "until", "amount", "counted", "sized", "pretty")
_FUNCTIONS = ("share", "plural", "sparkline")


def rendered(template: str, **context: object) -> str:
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {name: getattr(formatting, name) for name in _FILTERS} | {"moment": moment, "utc": to_iso}
    environment.globals |= {name: getattr(formatting, name) for name in _FUNCTIONS} | {
        "asset": asset,
        "menu": MENU,
        "version": __version__,
        "reason_max": REASON_CHARACTERS_MAX,
        "rate_min": RATE_MIN,
        "rate_max": RATE_MAX,
        "drain_min": DRAIN_MIN,
        "drain_max": DRAIN_MAX,
    }
    return environment


PREFIX = "/console/static"
_STATIC_FOLDER = Path(__file__).with_name("static")
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}


def asset(name: str) -> str:
    """The URL of a static file."""
    return f"{PREFIX}/{_edition()}/{name}"


async def serve_asset(request: Request) -> Response:
    """Serve a static file. No session is needed, because the static files are the same in every installation."""
    name = request.path_params["name"]
    found = _assets().get(name)
    if found is None:
        raise NotFound("no such file")
    return Response(found, media_type=_KINDS[Path(name).suffix], headers=_FOR_EVER)


@cache
def _assets() -> dict[str, bytes]:
    """The content of each static file, by its path."""
    files = (path for path in sorted(_STATIC_FOLDER.rglob("*")) if path.suffix in _KINDS)
    return {path.relative_to(_STATIC_FOLDER).as_posix(): path.read_bytes() for path in files}


@cache
def _edition() -> str:
    """A hash of all static files. The hash is part of their URLs, so that browsers may cache the files forever."""
    whole = hashlib.sha256()
    for name, content in _assets().items():
        whole.update(name.encode() + b"\0" + content)
    return whole.hexdigest()[:16]


class Screen(NamedTuple):
    title: str
    path: str
    key: str
    default_org: bool = False
    """Whether the screen is only for keys of the default organization, which administers the whole installation."""


MENU: tuple[tuple[Screen, ...], ...] = (
    (
        Screen("Overview", "/console", "o"),
        Screen("Events", "/console/events", "v"),
        Screen("Retry queue", "/console/retry-queue", "r"),
        Screen("Dead letters", "/console/dead-letters", "d"),
    ),
    (
        Screen("Endpoints", "/console/endpoints", "e"),
        Screen("Batches", "/console/batches", "t"),
        Screen("Pipelines", "/console/pipelines", "p"),
    ),
    (
        Screen("Bulk operations", "/console/bulk", "b"),
        Screen("Alerts", "/console/alerts", "a"),
        Screen("Audit log", "/console/audit", "l"),
        Screen("Workers", "/console/workers", "w", default_org=True),
        Screen("Settings", "/console/settings", "s"),
    ),
)
"""The screens in the menu, in three groups: events, destinations, administration."""
