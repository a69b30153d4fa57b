"""docs/reference/console.md has a section for each screen, and explains what each key does."""

from __future__ import annotations

import re
from pathlib import Path

import doorstep.console
from doorstep.console.rendering import MENU
from tests.docs.pages import REFERENCE, rows, section

PAGE = REFERENCE / "console.md"
HELP = Path(doorstep.console.__file__).with_name("templates") / "help.html"


def test_every_screen_of_the_menu_has_a_part_that_names_its_key() -> None:
    for group in MENU:
        for screen in group:
            assert section(PAGE, f"{screen.title} (`g` `{screen.key}`)")


def test_every_key_that_the_help_lists_is_on_the_page() -> None:
    listed = set(re.findall(r"<kbd>([^<{]+)</kbd>", HELP.read_text())) - {"Shift", "g"}
    told = {key for row in rows(PAGE, "## Common to all screens") for key in re.findall(r"`([^`]+)`", row[0])}
    assert listed - told == set()
    assert {"j", "k", "x", "r"} <= listed
