"""Builds the files of a release into dist/, and checks them.

python -m release                    wheels, source distributions, SBOM and checksums, from the commit that is checked out
python -m release --uncommitted      the same from the files as they are, to try it

A build that cannot be repeated cannot be verified by anyone else, so everything is built twice, in two folders, and must
have the same bytes. The SBOM lists what was really installed next to the wheel.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


class ReleaseError(Exception):
    """The release is not fit to be published."""


def main(arguments: list[str]) -> int:
    try:
        release(uncommitted="--uncommitted" in arguments)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def release(*, uncommitted: bool) -> None:
    with sources(uncommitted) as first, sources(uncommitted) as second:
        files = same_bytes(build(first), build(second))
        run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        published = [Path(shutil.copy2(file, DIST)) for file in files]
        published.append(bill_of_materials(next(DIST.glob("doorstep-*.whl")), first / "requirements" / "run.lock"))
    write_checksums(published)
    print(*(f"dist/{file.name}" for file in sorted(DIST.iterdir())), sep="\n")


@contextmanager
def sources(uncommitted: bool) -> Iterator[Path]:
    """A folder of its own with the files of the repository and nothing else, such as what other programs left there."""
    if not uncommitted and git("status", "--porcelain"):
        raise ReleaseError("there are uncommitted changes; commit them, or try with --uncommitted")
    listed = git("ls-files", "--cached", "--others", "--exclude-standard") if uncommitted else git("ls-files")
    with tempfile.TemporaryDirectory(prefix="doorstep-release-") as folder:
        for name in listed.splitlines():
            if (ROOT / name).is_file():
                target = Path(folder) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target)
        yield Path(folder)


def build(folder: Path) -> list[Path]:
    """Build the source distributions and, from them, the wheels: of Doorstep and of its client."""
    return sorted(build_project(folder) + build_project(folder / "clients" / "python"))


def build_project(folder: Path) -> list[Path]:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder))
    return list((folder / "dist").iterdir())


def same_bytes(files: list[Path], others: list[Path]) -> list[Path]:
    """The files, if a second build made the same ones."""
    ours, theirs = ({file.name: digest(file) for file in built} for built in (files, others))
    if differing := sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name)):
        raise ReleaseError(f"two builds of the same sources differ in {', '.join(differing)}")
    return files


def bill_of_materials(wheel: Path, lock: Path) -> Path:
    """Install a wheel in an empty environment, start its program, and write the SBOM of the environment."""
    bill = wheel.with_suffix(".cdx.json")
    with tempfile.TemporaryDirectory(prefix="doorstep-release-") as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        install = (python, "-m", "pip", "install", "--quiet")
        run(*install, "--requirement", str(lock))
        name, version, *_ = wheel.name.split("-")  # not the path, which would be in the SBOM
        run(*install, "--no-deps", "--no-index", "--find-links", str(wheel.parent), f"{name}=={version}")
        run(f"{folder}/bin/doorstep", "version")
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip")
        run("cyclonedx-py", "environment", "--output-reproducible", "--output-file", str(bill), python)
    return bill


def write_checksums(files: list[Path]) -> None:
    """In the format of `sha256sum --check`."""
    (DIST / "SHA256SUMS").write_text("".join(f"{digest(file)}  {file.name}\n" for file in sorted(files)))


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def run(*command: str) -> None:
    tool = Path(sys.executable).parent / command[0]  # the programs of this environment may not be on the path
    done = subprocess.run([tool, *command[1:]], check=False)
    if done.returncode != 0:
        raise ReleaseError(f"failed with exit code {done.returncode}: {' '.join(command)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
