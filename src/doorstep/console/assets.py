"""Style and scripts: read once, served under a path that changes with their content, so that browsers may keep them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from doorstep.errors import NotFound

PREFIX = "/console/static"
_FOLDER = Path(__file__).with_name("static")
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}


class _Asset(NamedTuple):
    content: bytes
    kind: str


def asset(name: str) -> str:
    """Where a file of ours is found."""
    return f"{PREFIX}/{_edition()}/{name}"


async def serve_asset(request: Request) -> Response:
    """Open to everyone: it is the same for every installation."""
    found = _assets().get(request.path_params["name"])
    if found is None:
        raise NotFound("no such file")
    return Response(found.content, media_type=found.kind, headers=_FOR_EVER)


@cache
def _assets() -> dict[str, _Asset]:
    files = (path for path in sorted(_FOLDER.rglob("*")) if path.suffix in _KINDS)
    return {path.relative_to(_FOLDER).as_posix(): _Asset(path.read_bytes(), _KINDS[path.suffix]) for path in files}


@cache
def _edition() -> str:
    """A name for what all the files together contain."""
    whole = hashlib.sha256()
    for name, found in _assets().items():
        whole.update(name.encode() + b"\0" + found.content)
    return whole.hexdigest()[:16]
