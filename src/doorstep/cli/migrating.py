"""`doorstep migrate`: brings the tables to this version, without starting anything."""

from __future__ import annotations

import asyncio

from doorstep.app import Doorstep
from doorstep.cli.output import Output, say
from doorstep.cli.running import naming_database, place_of_data, run_command
from doorstep.config import Settings
from doorstep.telemetry.facts import Telemetry


def migrate(settings: Settings, output: Output) -> int:
    """Do it, and say where."""

    async def command(_: Telemetry, __: asyncio.Event) -> None:
        doorstep = Doorstep(settings)
        with naming_database(settings):
            if doorstep.data_path is not None:
                doorstep.data_path.mkdir(parents=True, exist_ok=True)
            await doorstep.store.migrate()
        await doorstep.store.close()
        say(f"The tables in {place_of_data(doorstep)} are up to date")
        if output.as_json:
            output.json({"migrated": True, "database": place_of_data(doorstep)})

    return run_command(settings, command)
