"""The command itself: where the data goes, which settings, and what is said at the start."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from doorstep import keys
from doorstep.app import Doorstep
from doorstep.cli.demo.samples import SAMPLES
from doorstep.cli.demo.stage import Stage
from doorstep.cli.output import Output, say
from doorstep.cli.running import run_command
from doorstep.cli.serving import console_line
from doorstep.config import Settings
from doorstep.telemetry.facts import Telemetry

KEPT_FOLDER = "doorstep-demo"
_LOG_FILE = "doorstep.log"
"""Failures are the demo's everyday business, and would fill the terminal."""
_GRACE_SECONDS = 2.0


class Demo(NamedTuple):
    """What the command was told."""

    port: int | None
    """None: the usual one, or a free one where that is taken."""
    per_second: float
    keep: bool


def demonstrate(told: Demo, output: Output) -> int:
    """Run until a signal comes."""
    key = keys.new_key()
    with _folder(told.keep) as folder, open(folder / _LOG_FILE, "ab", buffering=0) as log:
        settings = _settings(folder, key)

        async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
            with ExitStack() as sockets:
                stage = Stage(sockets, told.port)
                doorstep = Doorstep(settings.model_copy(update={"public_url": stage.url}), telemetry=telemetry)
                place = _Place(stage.url, key, folder, told.keep)
                await stage.play(doorstep, told.per_second, stop, lambda link: _announce(output, place, link or ""))

        return run_command(settings, command, log.fileno())


def _settings(folder: Path, key: str) -> Settings:
    """Said here, so that a demo does not take over the database and workers of the installation around it."""
    return Settings(
        database_url=f"sqlite:///{folder / 'doorstep.db'}",
        admin_key=key,
        allow_addresses="127.0.0.0/8",
        grace_seconds=_GRACE_SECONDS,
        workers=0,
        console=True,
    )


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    """A folder of this demo's own, gone when it ends; or one that stays."""
    if keep:
        folder = Path(KEPT_FOLDER).absolute()
        folder.mkdir(exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="doorstep-demo-") as folder_name:
        yield Path(folder_name)


class _Place(NamedTuple):
    """What this demo is known by."""

    url: str
    key: str
    folder: Path
    keep: bool


def _announce(output: Output, place: _Place, link: str) -> None:
    url, key, folder, keep = place
    if output.as_json:
        output.json({"url": url, "key": key, "console": url + link, "folder": str(folder), "kept": keep})
    program = _program()
    say(
        f"Doorstep's demo listens at {url} (its API is described at {url}/docs)",
        f"Its data and its log are in {folder}, {'and stay there' if keep else 'and go when this ends'}",
        f"It delivers to {', '.join(f'{sample.name} ({sample.about})' for sample in SAMPLES)}",
        console_line(url, link),
        "",
        "In another terminal:",
        "",
        f"  export DOORSTEP_URL={url} DOORSTEP_API_KEY={key}",
        f"  {program} tail",
        f"  {program} dead-letters groups",
        f"  {program} endpoints circuit erp",
        f"  {program} pipelines list bill",
        "",
        "Ctrl-C ends it.",
    )


def _program() -> str:
    """How this program is called from here."""
    if shutil.which("doorstep"):
        return "doorstep"
    called = Path(sys.argv[0]).absolute()
    return _from_here(called) if called.name == "doorstep" else f"{_from_here(Path(sys.executable))} -m doorstep"


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
