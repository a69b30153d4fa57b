"""The packages of the functions: the same bytes each time, and everything in them that a function imports."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from deploy.aws.measure import measured
from deploy.aws.package import LIBRARIES, archive_of
from tests.aws.packages import ROOT, build


def test_an_archive_depends_on_nothing_but_the_names_and_contents_of_its_files() -> None:
    files = {"b/two.py": b"2", "a.so": b"1", "b/one.py": b"1"}
    archive = archive_of(files)
    assert archive == archive_of(dict(reversed(files.items())))
    assert archive != archive_of(files | {"a.so": b"2"})


@pytest.mark.full
def test_two_builds_have_the_same_bytes_and_each_function_finds_all_that_it_imports(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    if not build(first, tmp_path / "wheels"):
        pytest.skip("THE PACKAGES OF THE FUNCTIONS WERE NOT TESTED: THE WHEELS CANNOT BE DOWNLOADED HERE")
    assert build(second, tmp_path / "wheels")
    for name in LIBRARIES:
        archive = first / f"{name}.zip"
        assert archive.read_bytes() == (second / f"{name}.zip").read_bytes(), name
        one = measured(archive)
        assert one.packed_bytes < 50_000_000  # the limit of an upload without S3
        assert one.unpacked_bytes < 250_000_000  # the limit of Lambda
        with zipfile.ZipFile(archive) as packed:
            compiled = [entry for entry in packed.namelist() if entry.startswith("doorstep/aws/__pycache__/")]
        assert compiled, f"{name} would be compiled at each start"


@pytest.mark.full
def test_a_package_with_a_program_contains_it_and_what_programs_may_import(tmp_path: Path) -> None:
    if not build(tmp_path / "out", tmp_path / "wheels", "--add", str(ROOT / "examples")):
        pytest.skip("THE PACKAGE OF A PROGRAM WAS NOT TESTED: THE WHEELS CANNOT BE DOWNLOADED HERE")
    with zipfile.ZipFile(tmp_path / "out" / "delivery.zip") as packed:
        names = set(packed.namelist())
    assert {"examples/triggers/program.py", "fastapi/__init__.py", "doorstep/web.py"} <= names
