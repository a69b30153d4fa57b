"""The public interface of `Doorstep`: small enough to remember, and fully documented."""

from __future__ import annotations

import inspect
from pathlib import Path

from doorstep import Doorstep

NAMES_MAX = 30
NAMES = {
    "opening and closing": {"open", "close", "close_sync", "start", "run", "lifespan"},
    "sending": {"send", "send_sync", "send_many", "wake"},
    "declaring": {"handler", "batch", "on_dead_letter", "register", "add"},
    "asking": {"event", "deliveries", "attempts", "create_endpoint", "endpoints"},
    "what it has": {
        "settings", "telemetry", "clock", "registry", "server", "batches", "outbox", "generated_admin_key",
        "components", "binding",
    },
}  # fmt: skip
REFERENCE = Path(__file__).parents[2] / "docs/reference/library/doorstep.md"


def public_names() -> set[str]:
    return {name for name in dir(Doorstep("memory://")) if not name.startswith("_")}


def test_its_public_names_are_these_and_no_more_than_thirty() -> None:
    assert public_names() == set().union(*NAMES.values())
    assert len(public_names()) <= NAMES_MAX


def test_each_public_name_is_explained_in_the_code_and_in_the_reference() -> None:
    section = REFERENCE.read_text().partition("\n## Doorstep\n")[2].partition("\n## ")[0]
    for name in sorted(public_names()):
        member = inspect.getattr_static(Doorstep, name, None)
        if member is None:
            assert f"\n| `{name}` |" in section, name
        else:
            assert inspect.getdoc(member), name
            assert f"\n### `Doorstep.{name}`\n" in section, name


def test_it_is_one_class_in_one_file() -> None:
    assert Doorstep.__mro__ == (Doorstep, object)
