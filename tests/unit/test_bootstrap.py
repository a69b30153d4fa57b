"""The bootstrap key: it exists from the first start, and once revoked it stays revoked."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from doorstep import Doorstep, bootstrap
from doorstep.bootstrap import DEFAULT_ORG, prepare
from doorstep.config import Settings
from doorstep.model.listing import KeysByDigest, OrgKeys
from doorstep.model.org import Role
from doorstep.operations import keys
from tests.reference import ReferenceStore
from tests.support.builders import NOW
from tests.support.shortcuts import put

GIVEN = "a-key-that-was-given"
SETTINGS = Settings(database_url="memory://", admin_key=GIVEN)


async def test_a_given_key_is_an_admin_key_of_the_default_organization_and_is_kept_once() -> None:
    store = ReferenceStore()
    for _ in range(2):
        assert await prepare(store, SETTINGS, NOW) is None
    (key,) = await store.find(DEFAULT_ORG, OrgKeys())
    assert (key.role, key.digest, key.is_valid(NOW)) == (Role.ADMIN, keys.digest(GIVEN), True)


async def test_a_given_key_that_was_revoked_stays_revoked_and_the_start_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = ReferenceStore()
    await prepare(store, SETTINGS, NOW)
    (key,) = await store.find(DEFAULT_ORG, OrgKeys())
    await put(store, replace(key, revoked_at=NOW))
    with caplog.at_level(logging.WARNING):
        await prepare(store, SETTINGS, NOW + 1)
    (kept,) = await store.find(DEFAULT_ORG, OrgKeys())
    assert kept.revoked_at == NOW
    (said,) = caplog.messages
    assert said.startswith("DOORSTEP_ADMIN_KEY was revoked at 2025-06-15T") and GIVEN not in said


async def test_another_key_can_be_given_where_the_first_was_revoked() -> None:
    store = ReferenceStore()
    await prepare(store, SETTINGS, NOW)
    (key,) = await store.find(DEFAULT_ORG, OrgKeys())
    await put(store, replace(key, revoked_at=NOW))
    await prepare(store, Settings(database_url="memory://", admin_key="another-key"), NOW)
    assert [one.is_valid(NOW) for one in await store.find(DEFAULT_ORG, OrgKeys())] == [False, True]


async def test_a_first_start_without_a_key_makes_one_and_later_ones_do_not() -> None:
    store = ReferenceStore()
    made = await prepare(store, Settings(database_url="memory://"), NOW)
    assert (
        made is not None
        and next(iter(await store.find(None, KeysByDigest(digest=keys.digest(made)))), None) is not None
    )
    assert await prepare(store, Settings(database_url="memory://"), NOW) is None


async def test_no_key_is_made_for_who_has_nobody_to_show_it_to_and_the_next_start_makes_it() -> None:
    store = ReferenceStore()
    assert await prepare(store, Settings(database_url="memory://"), NOW, new_key=False) is None
    assert not await store.find(DEFAULT_ORG, OrgKeys())
    assert await prepare(store, Settings(database_url="memory://"), NOW) is not None


def test_two_first_starts_with_the_same_process_number_agree_on_one_secret_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two containers that share a volume, the other start happens between our read and our write."""
    settings = Settings(database_url=f"sqlite:///{tmp_path}/app.db")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    made = bootstrap.new_secret_key
    others: list[bytes] = []

    def made_while_another_starts() -> str:
        if not others:
            others.append(b"")
            others[0] = bootstrap.sealer_for(settings).seal(b"x", context="")
        return made()

    monkeypatch.setattr(bootstrap, "new_secret_key", made_while_another_starts)
    assert bootstrap.sealer_for(settings).unseal(others[0], context="") == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600


def test_a_program_that_changes_its_folder_keeps_its_database_and_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "else where").mkdir()
    monkeypatch.chdir(tmp_path)
    doorstep = Doorstep("sqlite:///odd%20name%25.db")
    monkeypatch.chdir(tmp_path / "else where")
    doorstep.send_sync("order.paid", {"order": 1})
    doorstep.close_sync()
    doorstep.send_sync("order.paid", {"order": 2})
    doorstep.close_sync()
    assert {path.name for path in tmp_path.iterdir()} >= {"odd name%.db", "secret.key"}
    assert list((tmp_path / "else where").iterdir()) == []
