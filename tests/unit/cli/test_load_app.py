"""`--app`: the user's program receives the settings given on the command line, and no others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doorstep.errors import ConfigError
from doorstep.loading import load_app

LIKE_DOTENV = """
import os
os.environ.setdefault("DOORSTEP_DATABASE_URL", "memory://")
from doorstep import Doorstep
ds = Doorstep()
"""
HARD_CODED = """
from doorstep import Doorstep
ds = Doorstep("postgresql://shop:secret@db/shop")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder and an environment without Doorstep variables; both are restored afterwards."""
    environment, path = dict(os.environ), list(sys.path)
    for name in [name for name in os.environ if name.startswith("DOORSTEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    for name in [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


def test_a_setting_that_nobody_typed_is_for_the_program_to_find_out(folder: Path) -> None:
    (folder / "shop_dotenv.py").write_text(LIKE_DOTENV)
    assert load_app("shop_dotenv:ds", {"database_url": None, "port": None}).settings.database_url == "memory://"


def test_what_was_typed_goes_to_the_program(folder: Path) -> None:
    (folder / "shop_typed.py").write_text(LIKE_DOTENV)
    said = {"database_url": "sqlite:///typed.db", "workers": 3}
    settings = load_app("shop_typed:ds", said).settings
    assert (settings.database_url, settings.workers) == (f"sqlite:///{folder}/typed.db", 3)


def test_a_database_that_was_typed_is_never_another_one_than_that_of_the_program(folder: Path) -> None:
    (folder / "shop_coded.py").write_text(HARD_CODED)
    with pytest.raises(ConfigError, match="--database cannot be used with --app shop_coded:ds, which has") as refused:
        load_app("shop_coded:ds", {"database_url": "sqlite:///typed.db"})
    assert "postgresql://db/shop" in str(refused.value) and "secret" not in str(refused.value)
    assert load_app("shop_coded:ds", {"database_url": None}).settings.database_url.endswith("@db/shop")
