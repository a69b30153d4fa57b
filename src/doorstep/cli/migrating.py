"""`doorstep migrate`: brings the tables to this version, without starting anything."""

from __future__ import annotations

import asyncio

from doorstep.bootstrap import data_path, pinned
from doorstep.cli.output import Output, say
from doorstep.cli.running import naming_database, place_of_data, run_command
from doorstep.config import Settings
from doorstep.stores.opening import store_from_url
from doorstep.telemetry.facts import Telemetry


def migrate(settings: Settings, output: Output) -> int:
    """Do it, and say where."""

    async def command(_: Telemetry, __: asyncio.Event) -> None:
        store = store_from_url(pinned(settings).database_url)
        with naming_database(settings):
            if (folder := data_path(settings)) is not None:
                folder.mkdir(parents=True, exist_ok=True)
            await store.migrate()
        await store.close()
        say(f"The tables in {place_of_data(settings)} are up to date")
        if output.as_json:
            output.json({"migrated": True, "database": place_of_data(settings)})

    return run_command(settings, command)
