"""Database URLs: which store each one selects, and the errors for URLs that select none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from doorstep.errors import ConfigError, MissingExtra
from doorstep.stores import open
from doorstep.stores.open import store_from_url
from doorstep.stores.sql.sqlite.memory_store import MemoryStore
from doorstep.stores.sql.sqlite.store import SqliteStore


async def test_four_slashes_name_an_absolute_file_and_three_a_relative_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await store_from_url(f"sqlite:///{tmp_path}/absolute.db").migrate()
    await store_from_url("sqlite:///relative.db").migrate()
    assert {"absolute.db", "relative.db"} <= set(os.listdir(tmp_path))


async def test_a_file_name_may_have_spaces_and_signs(tmp_path: Path) -> None:
    await store_from_url(f"sqlite:///{tmp_path}/a%20b%23c?d.db".replace("?", "%3F")).migrate()
    assert (tmp_path / "a b#c?d.db").exists()


def test_a_sqlite_url_gives_a_sqlite_store_and_memory_a_memory_store() -> None:
    assert isinstance(store_from_url("sqlite:///x.db"), SqliteStore)
    assert isinstance(store_from_url("memory://"), MemoryStore)


@pytest.mark.parametrize("url", ["", "x.db", "mysql://host/db", "sqlite://x.db", "sqlite:///", "sqlite:///:memory:"])
def test_any_other_url_is_refused_with_what_to_write_instead(url: str) -> None:
    with pytest.raises(ConfigError, match="sqlite:///|memory://"):
        store_from_url(url)


def test_postgres_without_its_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs the extra `postgres`.*pip install '.+\[postgres\]'"):
        store_from_url("postgresql://localhost/x")


def test_dynamodb_without_its_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs the extra `aws`"):
        store_from_url("dynamodb://table?region=eu-central-1")
