"""The README as the long description of the package.

On a package index and in a mail reader there is no repository around the text, so a relative link would lead nowhere.
Each one becomes the path that it points to, and pictures are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_NOTE = "> Paths such as `docs/README.md` are files of the repository and of the source distribution.\n\n"
_RELATIVE = re.compile(r"\[([^\]]+)\]\((?!https?://|mailto:|#)([^)#]+)(?:#[^)]*)?\)")


class Readme(MetadataHookInterface):
    """Fills in the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": standalone(text)}


def standalone(text: str) -> str:
    """The text without relative links and pictures."""
    text = re.sub(r"<picture>.*?</picture>\n*", "", text, flags=re.DOTALL)
    title, rest = _RELATIVE.sub(_as_path, text).split("\n\n", 1)
    return f"{title}\n\n{_NOTE}{rest}"


def _as_path(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text == path else f"{text} (`{path}`)"
