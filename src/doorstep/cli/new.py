"""`doorstep new`: writes the program of a profile into a folder, as the start of a service of one's own."""

from __future__ import annotations

import re
from pathlib import Path

import doorstep
from doorstep.errors import ConfigError

_SHARED = ("counterpart.py", "serving.py", "theatre.py")
"""The modules that the programs of all profiles use."""


def sources() -> Path:
    """The folder with the profiles: in the installed package, or else `examples` in the repository."""
    package = Path(doorstep.__file__).parent
    installed = package / "profiles"
    return installed if installed.is_dir() else package.parent.parent / "examples"


def profiles() -> list[str]:
    return sorted(path.parent.name for path in sources().glob("*/program.py"))


def create(profile: str, folder: Path) -> list[Path]:
    """Copy a profile into a new folder; return the files. Its modules then import each other without a package."""
    if profile not in profiles():
        raise ConfigError(f"there is no profile {profile!r}; known are {', '.join(profiles())}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not an empty folder; choose another")
    own = [path for path in sorted((sources() / profile).glob("*.py")) if path.name != "__init__.py"]
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for source in (*own, *(sources() / name for name in _SHARED)):
        target = folder / source.name
        target.write_text(_rewritten(source.read_text(), profile))
        written.append(target)
    return written


def _rewritten(code: str, profile: str) -> str:
    """The code with the names that it has outside the package `examples`."""
    code = code.replace(f"examples.{profile}:app", "program:app").replace(
        f"from examples.{profile} import", "from program import"
    )
    code = re.sub(rf"python -m examples\.{profile}\b(?!\.)", "python .", code)
    return re.sub(rf"\bexamples\.(?:{profile}\.)?(?=\w)", "", code)
