"""Builds api.zip, delivery.zip and sweeper.zip, the packages of the functions: `make aws-package`.

The same sources give the same bytes: files are sorted, have one date, and come from the versions that requirements/*.lock
pins. Modules are compiled if the target's Python is on this machine, because a function cannot keep what it compiles: it
would compile everything again at each start.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
LOCK = ROOT / "requirements" / "dev.lock"

_ENGINE = (
    "annotated-types",
    "cffi",
    "cryptography",
    "msgspec",
    "pycurl",
    "pydantic",
    "pydantic-core",
    "pydantic-settings",
    "python-dotenv",
    "typing-extensions",
    "typing-inspection",
)
_WEB = (
    "annotated-doc",
    "anyio",
    "fastapi",
    "h11",
    "httpcore2",
    "httpx2",
    "idna",
    "jinja2",
    "mangum",
    "markupsafe",
    "opentelemetry-api",
    "prometheus-client",
    "starlette",
    "truststore",
)
LIBRARIES: Mapping[str, Sequence[str]] = {"api": (*_ENGINE, *_WEB), "delivery": _ENGINE, "sweeper": _ENGINE}
"""The libraries of each function. botocore is part of Lambda's Python. A test runs each package with nothing else."""

_UNUSED = ("cli", "testing", "profiles", "stores/sql/migrations")
_UNUSED_WITHOUT_WEB = (*_UNUSED, "api", "console", "client")
PARTS_LEFT_OUT: Mapping[str, Sequence[str]] = {
    "api": _UNUSED,
    "delivery": _UNUSED_WITHOUT_WEB,
    "sweeper": _UNUSED_WITHOUT_WEB,
}
"""The folders of doorstep that a function does not load."""

_PLATFORMS = {
    "x86_64": ("manylinux_2_28_x86_64", "manylinux2014_x86_64"),
    "arm64": ("manylinux_2_28_aarch64", "manylinux2014_aarch64"),
}
"""Wheels that run on Amazon Linux 2023. Its Pythons are 3.12 and newer."""
_DATE = (1980, 1, 1, 0, 0, 0)

Files = dict[str, bytes]
"""The content of a package, by path."""


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    added = [file for path in options.add for file in _files_of(path, path.parent)]
    for name in LIBRARIES:
        # A program may use the web framework, for example to declare its own routes.
        like = "api" if added else name
        files = dict(_sources(PARTS_LEFT_OUT[like])) | dict(added)
        for wheel in _wheels(LIBRARIES[like], options.python, options.architecture, options.wheels):
            files |= _unpacked(wheel)
        files |= _compiled(files, options.python)
        archive = options.out / f"{name}.zip"
        archive.write_bytes(archive_of(files))
        unpacked = sum(map(len, files.values()))
        print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB, unpacked {unpacked / 1e6:.1f} MB, {len(files)} files")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "aws")
    parser.add_argument("--python", default="3.13", help="the Python of the functions")
    parser.add_argument("--architecture", choices=_PLATFORMS, default="x86_64")
    parser.add_argument("--add", type=Path, action="append", default=[], help="your own module or package; repeatable")
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "aws" / "wheels", help="keeps downloads")
    return parser.parse_args()


# -- files -----------------------------------------------------------------------------------------------------------


def _sources(left_out: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    skipped = tuple(f"doorstep/{folder}/" for folder in left_out)
    return ((name, data) for name, data in _files_of(SOURCES / "doorstep", SOURCES) if not name.startswith(skipped))


def _files_of(path: Path, root: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc":
            yield file.relative_to(root).as_posix(), file.read_bytes()


def _unpacked(wheel: Path) -> Files:
    """The files of a wheel, without what only type checkers and compilers read."""
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if not name.endswith((".pyi", ".pxd", ".h", "/"))]
        assert not any(re.search(r"\.data/(pure|plat)lib/", name) for name in names), f"{wheel} has to be installed"
        return {name: packed.read(name) for name in names if ".data/" not in name}


def _wheels(names: Sequence[str], python: str, architecture: str, folder: Path) -> list[Path]:
    """The wheels of the pinned versions for the target, downloaded if they are not in the folder yet."""
    pins = dict(line.split(" ;")[0].strip().split("==") for line in LOCK.read_text().splitlines() if "==" in line)
    folder = folder / f"{python}-{architecture}"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {name: pins[name] for name in names}
    if missing := [f"{name}=={version}" for name, version in wanted.items() if not _find(folder, name, version)]:
        platforms = [option for one in _PLATFORMS[architecture] for option in ("--platform", one)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        target = ["--implementation=cp", f"--python-version={python}", *platforms, f"--dest={folder}"]
        subprocess.run([*command, *target, *missing], check=True)
    return [_find(folder, name, version)[0] for name, version in sorted(wanted.items())]


def _find(folder: Path, name: str, version: str) -> list[Path]:
    return sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))


# -- compiling -------------------------------------------------------------------------------------------------------


def _compiled(files: Files, python: str) -> Files:
    """The compiled modules. They name no date and no folder of this machine, so their bytes are always the same."""
    interpreter = _interpreter(python)
    if interpreter is None:
        print(f"no Python {python} on this machine: the packages contain no compiled modules, and start more slowly")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name, data in files.items():
            if name.endswith(".py"):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_bytes(data)
        command = [interpreter, "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash"]
        environ = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run([*command, "-s", folder, "-p", "/var/task", folder], check=True, env=environ)
        return {file.relative_to(tree).as_posix(): file.read_bytes() for file in sorted(tree.rglob("*.pyc"))}


def _interpreter(python: str) -> str | None:
    """A Python of this version, if there is one."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in (sys.executable, f"python{python}"):
        try:
            answer = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if answer.stdout.strip() == python:
            return candidate
    return None


# -- archives --------------------------------------------------------------------------------------------------------


def archive_of(files: Mapping[str, bytes]) -> bytes:
    """A zip archive that depends on nothing but the names and contents of its files."""
    with tempfile.TemporaryFile() as target:
        with zipfile.ZipFile(target, "w") as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(str(PurePosixPath(name)), _DATE)
                entry.create_system = 3  # Unix, also on other systems
                entry.external_attr = (0o755 if ".so" in PurePosixPath(name).suffixes else 0o644) << 16
                archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 9)
        target.seek(0)
        return target.read()


if __name__ == "__main__":
    main()
