"""Builds revisions, each in its own folder and virtual environment, with the revision's own `make install`."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


class RefError(Exception):
    """There is no such revision."""


@dataclass(frozen=True)
class Revision:
    ref: str
    """As the user named it."""
    sha: str
    program: Path
    """Its `doorstep` command."""

    def __str__(self) -> str:
        return self.sha[:12] if self.sha.startswith(self.ref) else f"{self.ref} ({self.sha[:12]})"


def build(ref: str, root: Path = ROOT) -> Revision:
    """Build the revision of a git ref, unless an earlier run has built it (`make clean` removes it)."""
    sha = _resolve(ref, root)
    folder = root / "build" / "against" / sha
    revision = Revision(ref, sha, folder / ".venv" / "bin" / "doorstep")
    if not (folder / ".built").exists():
        print(f"building {revision}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)  # an earlier run may have been interrupted
        folder.mkdir(parents=True)
        _unpack(sha, root, folder)
        subprocess.run(["make", "--quiet", "install"], cwd=folder, env=_environment(), check=True)
        (folder / ".built").touch()
    return revision


def is_dirty(root: Path = ROOT) -> bool:
    """Whether tracked files have uncommitted changes."""
    return bool(_git(root, "status", "--porcelain", "--untracked-files=no"))


def _resolve(ref: str, root: Path) -> str:
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except subprocess.CalledProcessError:
        raise RefError(f"{ref!r} names no commit of this repository; try a branch, a tag or a hash") from None


def _unpack(sha: str, root: Path, folder: Path) -> None:
    archive = subprocess.run(["git", "archive", sha], cwd=root, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True
    ).stdout.strip()


def _environment() -> dict[str, str]:
    """The environment without the variables of our own make and virtual environment, which would affect the build."""
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in ours}
