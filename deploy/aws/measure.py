"""Measures the packages that package.py built: `python deploy/aws/measure.py`. Prints a table of sizes and import times.

Each function is imported from its unpacked package by a fresh process that has no other libraries, five times; the least
processor time counts. A cold start takes this, plus what Lambda needs to fetch the package and start Python, plus opening
the store.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

TIMES = 5
_CODE = """
import sys, time
sys.path.insert(0, sys.argv[1])
before = time.process_time()
__import__("doorstep.aws." + sys.argv[2])
print(time.process_time() - before, len(sys.modules))
"""


class Measured(NamedTuple):
    name: str
    packed_bytes: int
    unpacked_bytes: int
    import_seconds: float
    modules: int


def measured(archive: Path, python: str = sys.executable) -> Measured:
    """Raises CalledProcessError if the package lacks a library."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
        runs = [_import(folder, archive.stem, python) for _ in range(TIMES)]
        unpacked = sum(entry.file_size for entry in packed.infolist())
    seconds, modules = min(runs)
    return Measured(archive.stem, archive.stat().st_size, unpacked, seconds, modules)


def _import(folder: str, function: str, python: str) -> tuple[float, int]:
    # -I and -S: nothing but the package and Python itself can be imported.
    command = [python, "-I", "-S", "-c", _CODE, folder, function]
    seconds, modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), int(modules)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=Path(__file__).parents[2] / "build" / "aws")
    parser.add_argument("--with", dest="python", default=sys.executable, help="the Python that they were built for")
    options = parser.parse_args()
    print("| function | package | unpacked | import, CPU | modules |\n| --- | --- | --- | --- | --- |")
    for archive in sorted(options.packages.glob("*.zip")):
        one = measured(archive, options.python)
        sizes = f"{one.packed_bytes / 1e6:.1f} MB | {one.unpacked_bytes / 1e6:.1f} MB"
        print(f"| {one.name} | {sizes} | {1_000 * one.import_seconds:.0f} ms | {one.modules} |")


if __name__ == "__main__":
    main()
