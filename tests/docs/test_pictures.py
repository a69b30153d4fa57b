"""The pictures of the console: all are shown, in both themes, and no file is large."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, REFERENCE

FOLDER = REFERENCE / "console"
THEMES = ("light", "dark")
_BYTES_MAX, _BYTES_MAX_IN_ALL = 200_000, 4_000_000


def shown(page: Path) -> Iterator[Path]:
    for name in re.findall(r'(?:src|srcset)="([^"]+)"', page.read_text()):
        yield (page.parent / name).resolve()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_picture_that_a_page_shows_is_there(page: Path) -> None:
    assert [picture for picture in shown(page) if not picture.exists()] == []


def test_every_picture_of_the_console_is_shown_in_both_themes() -> None:
    taken = {picture.resolve() for picture in FOLDER.glob("*.png")}
    assert taken and taken == set(shown(REFERENCE / "console.md"))
    light, dark = ({one.name.partition(f"-{theme}.")[0] for one in FOLDER.glob(f"*-{theme}.png")} for theme in THEMES)
    assert light == dark


def test_pictures_are_light() -> None:
    sizes = {picture.name: picture.stat().st_size for picture in FOLDER.glob("*.png")}
    assert {name: size for name, size in sizes.items() if size > _BYTES_MAX} == {}
    assert sum(sizes.values()) <= _BYTES_MAX_IN_ALL
