"""`doorstep worker`: delivers what other processes accept; with --app, also to your own Python handlers."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys

from doorstep.app import Doorstep
from doorstep.cli.running import key_line, naming_database, place_of_data, run_command, say, spare_collector
from doorstep.config import Settings
from doorstep.errors import ConfigError
from doorstep.telemetry import Telemetry


def work(settings: Settings, app: str | None, *, end_with_parent: bool = False) -> int:
    doorstep = Doorstep(settings) if app is None else load(app, settings)

    async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
        doorstep.telemetry.subscribe(telemetry.emit_all)
        if end_with_parent:
            doorstep.guard.refuse_own(settings.host, settings.port)
            asyncio.get_running_loop().add_reader(0, _watch_parent, stop)
        with naming_database(doorstep.settings):
            await doorstep.open()
        try:
            doorstep.start()
            spare_collector()
            if not end_with_parent:
                say(f"A Doorstep worker delivers from {place_of_data(doorstep)}; Ctrl-C ends it", *key_line(doorstep))
            await stop.wait()
        finally:
            await doorstep.close()

    return run_command(doorstep.settings, command)


def load(app: str, settings: Settings) -> Doorstep:
    """The Doorstep that `module:name` names, or that the function of this name makes."""
    module_name, _, name = app.partition(":")
    if not module_name or not name:
        raise ConfigError(f"--app must be module:name, got {app!r}; for example --app shop.events:doorstep")
    os.environ["DOORSTEP_DATABASE_URL"] = settings.database_url  # for a Doorstep() made without arguments
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), name)
        doorstep = found() if callable(found) else found
    except Exception as error:  # noqa: BLE001  whatever their module does
        raise ConfigError(
            f"--app {app} cannot be loaded: {type(error).__name__}: {error}; "
            f"see python -c 'import {module_name}' in this folder"
        ) from None
    if not isinstance(doorstep, Doorstep):
        raise ConfigError(f"--app must name a Doorstep, got {type(doorstep).__name__} for {app}")
    return doorstep


def _watch_parent(stop: asyncio.Event) -> None:
    """Our supervisor never writes to the pipe; it only closes it, by ending."""
    if not os.read(0, 1_024):
        asyncio.get_running_loop().remove_reader(0)
        stop.set()
