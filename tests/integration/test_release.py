"""`make release`: builds that can be repeated, with the metadata that people and tools rely on."""

from __future__ import annotations

import email
import json
import re
import tomllib
from collections.abc import Iterator
from email.message import Message
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from doorstep import __version__
from release import __main__ as program
from release.__main__ import ReleaseError, build, digest, same_bytes, sources
from release.metadata import standalone
from tests.docs.pages import PAGES, ROOT, rows

VENDOR = ROOT / "src" / "doorstep" / "console" / "static" / "vendor"
_UNPUBLISHED = re.compile(
    r"(?:pip|pipx|uv|uvx|npm|poetry) (?:install|add|i|run)\b[^\n`]*?[ \t'\"]doorstep[\w-]*(?=$|[\s'\"\[=<>~`])"
)
"""A command that installs a package by a name that nobody has registered. A path to a file is not such a name."""


@pytest.fixture(scope="module")
def built() -> Iterator[list[Path]]:
    """The files of a build, once; checks that a second build makes the same ones."""
    with sources(uncommitted=True) as first, sources(uncommitted=True) as second:
        yield same_bytes(build(first), build(second))


@pytest.fixture(scope="module")
def metadata(built: list[Path]) -> Message:
    (wheel,) = (file for file in built if file.match("doorstep-*.whl"))
    with ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(opened.read(name))


def test_two_builds_have_the_same_bytes(built: list[Path]) -> None:
    names = (f"{name}-{__version__}" for name in ("doorstep", "doorstep_client"))
    assert {file.name for file in built} == {
        f"{name}{kind}" for name in names for kind in ("-py3-none-any.whl", ".tar.gz")
    }


def test_the_control_builds_that_differ_are_refused(tmp_path: Path) -> None:
    for folder, content in (("one", b"1"), ("two", b"2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.whl").write_bytes(content)
    with pytest.raises(ReleaseError, match=r"differ in a\.whl"):
        same_bytes([tmp_path / "one" / "a.whl"], [tmp_path / "two" / "a.whl"])


def test_uncommitted_changes_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(program, "git", lambda *arguments: " M README.md\n" if "status" in arguments else "README.md\n")
    assert program.main([]) == 1
    assert "uncommitted changes" in capsys.readouterr().err


def test_the_wheel_has_complete_metadata(metadata: Message) -> None:
    assert metadata["Author"] == metadata["Maintainer"] == "The Doorstep maintainers"
    assert metadata["License-Expression"] == "Apache-2.0 AND 0BSD AND MIT"
    assert set(metadata.get_all("License-File", [])) == {"LICENSE", "THIRD-PARTY-LICENSES.md"}
    for minor in range(11, 15):
        assert f"Programming Language :: Python :: 3.{minor}" in metadata.get_all("Classifier", [])


def test_the_long_description_needs_no_repository_around_it(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert "# Doorstep" in text and "`docs/how-to/outbox.md`" in text
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)|<img|<picture", text) == []


def test_links_become_paths_and_pictures_go() -> None:
    text = "# T\n\n<picture>\n<img src='a.png'>\n</picture>\n\nSee [it](docs/a.md#b), [c.md](c.md), [x](https://x.example).\n"
    assert standalone(text).endswith("\n\nSee it (`docs/a.md`), `c.md`, [x](https://x.example).\n")


def test_every_vendored_file_is_listed_with_its_license_and_checksum() -> None:
    page = ROOT / "THIRD-PARTY-LICENSES.md"
    listed = {Path(row[0].strip("`")).name: row[3].strip("`") for row in rows(page, "# Third-party licenses")}
    assert listed == {file.name: sha256(file.read_bytes()).hexdigest() for file in VENDOR.iterdir()}


def test_every_place_that_names_the_version_names_this_one() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(__version__)} – \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)
    typescript = ROOT / "clients" / "typescript"
    for file in ("package.json", "package-lock.json"):  # of the other client; that of Python takes Doorstep's
        assert json.loads((typescript / file).read_text())["version"] == __version__
    wheels = re.findall(r"doorstep\w*-([\d.]+)-py3", "".join(page.read_text() for page in PAGES))
    assert set(wheels) == {__version__}
    printed = re.findall(r"Doorstep ([\d.]+) listens", "".join(page.read_text() for page in PAGES))
    assert set(printed) == {__version__}


def test_no_page_or_message_installs_a_name_that_is_not_published() -> None:
    texts = {
        path: path.read_text() for path in (*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "clients").glob("*/*.md"))
    }
    assert [(path.name, found) for path, text in texts.items() for found in _UNPUBLISHED.findall(text)] == []


@pytest.mark.parametrize("line", ["pip install doorstep", "pip install 'doorstep[otel]'", "uv add doorstep==0.2.0"])
def test_the_control_installing_an_unpublished_name_is_noticed(line: str) -> None:
    assert _UNPUBLISHED.findall(line)
    assert not _UNPUBLISHED.findall("pip install ./doorstep-0.2.0-py3-none-any.whl")


def test_the_checksums_are_those_of_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "DIST", tmp_path)
    (tmp_path / "a.whl").write_bytes(b"a")
    program.write_checksums([tmp_path / "a.whl"])
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest(tmp_path / 'a.whl')}  a.whl\n"


def test_the_release_tools_are_pinned_like_those_of_the_tests() -> None:
    """A release is built with the versions that the tests built it with."""
    pins = [
        dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements" / f"{name}.lock").read_text(), re.MULTILINE))
        for name in ("release", "dev")
    ]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["release"]
    assert {re.split("[<>=]", name)[0] for name in wanted} <= pins[0].keys()
    assert [name for name in pins[0].keys() & pins[1].keys() if pins[0][name] != pins[1][name]] == []
