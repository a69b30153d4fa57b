"""Makes the package `doorstep_client` from the modules of Doorstep that its client consists of.

The package has a name of its own, so that a program can have both distributions installed, even of different versions.
In a source distribution the copies are already there, and the originals are not.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_COPIES = {
    "client/": "",
    "schemas/": "schemas/",
    "errors.py": "exceptions.py",
    "finite.py": "finite.py",
    "py.typed": "py.typed",
}
"""The folders and files of `doorstep`, and what they are called in the copy."""
_NAMES = (
    (r"from doorstep import __version__", "from doorstep_client.version import __version__"),
    (r"\bdoorstep\.errors\b", "doorstep_client.exceptions"),
    (r"\bdoorstep\.finite\b", "doorstep_client.finite"),
    (r"\bdoorstep\.schemas\b", "doorstep_client.schemas"),
    (r"\bdoorstep\.client\b", "doorstep_client"),
)


class Copied(MetadataHookInterface):
    """Copies the modules, and fills in the field `version`."""

    def update(self, metadata: dict[str, Any]) -> None:
        here = Path(self.root)
        original, copy = here.parents[1] / "src" / "doorstep", here / "doorstep_client"
        if original.is_dir():
            write(original, copy)
        metadata["version"] = re.findall(r'__version__ = "(.+)"', (copy / "version.py").read_text())[0]


def write(original: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    for file in sorted(original.rglob("*")):
        name = file.relative_to(original).as_posix()
        source = next((source for source in _COPIES if name.startswith(source)), None)
        if source is not None and file.suffix in (".py", ".typed"):
            target = copy / name.replace(source, _COPIES[source], 1)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_renamed(file.read_text()))
    version = re.findall(r'^__version__ = ".+"$', (original / "__init__.py").read_text(), re.MULTILINE)[0]
    (copy / "version.py").write_text(f'"""The version of this package."""\n\n{version}\n')


def _renamed(code: str) -> str:
    for pattern, name in _NAMES:
        code = re.sub(pattern, name, code)
    return code
