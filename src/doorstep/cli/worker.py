"""`doorstep worker`: delivers what other processes accept; with --app, also to your own Python handlers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from doorstep.cli.load_app import doorstep_for
from doorstep.cli.output import say
from doorstep.cli.run import key_line, naming_database, place_of_data, run_command, spare_collector
from doorstep.config import Settings
from doorstep.telemetry.facts import Telemetry


def work(
    settings: Settings,
    app: str | None,
    *,
    isolate: bool = False,
    end_with_parent: bool = False,
    said: Mapping[str, object] = {},
) -> int:
    """Run until a signal comes. `said` is what the command line said of the settings."""
    doorstep = doorstep_for(settings, app, isolate=isolate, said=said)

    async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
        doorstep.telemetry.subscribe(telemetry.emit_all)
        if end_with_parent:
            asyncio.get_running_loop().add_reader(0, _watch_parent, stop)
        with naming_database(doorstep.settings):
            await doorstep.open(admin_key=True)
        try:
            if end_with_parent:
                doorstep.components.guard.refuse_own(settings.host, settings.port)
            doorstep.start()
            spare_collector()
            if not end_with_parent:
                say(
                    f"A Doorstep worker delivers from {place_of_data(doorstep.settings)}; Ctrl-C ends it",
                    *key_line(doorstep),
                )
            await stop.wait()
        finally:
            await doorstep.close()

    return run_command(doorstep.settings, command)


def _watch_parent(stop: asyncio.Event) -> None:
    """Our supervisor never writes to the pipe; it only closes it, by ending."""
    if not os.read(0, 1_024):
        asyncio.get_running_loop().remove_reader(0)
        stop.set()
