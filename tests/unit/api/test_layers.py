"""The API and the console read and write through `operations`; they must not call the store directly."""

from __future__ import annotations

import re
from pathlib import Path

import doorstep

_STORE = re.compile(r"components\.store\b|\.store\.\w|doorstep\.stores")


def store_uses(package: Path) -> list[str]:
    return [
        f"{path.name}:{number}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _STORE.search(line)
    ]


def test_neither_the_api_nor_the_console_touches_the_store() -> None:
    root = Path(doorstep.__file__).parent
    assert store_uses(root / "api") + store_uses(root / "console") == []


def test_a_use_of_the_store_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("await request.doorstep.components.store.payload(org_id, delivery_id)\n")
    assert store_uses(tmp_path) == ["page.py:1"]
