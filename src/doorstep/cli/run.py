"""What every long-running command has in common: a log, an event loop, signals, and an end that explains itself."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from doorstep.app import Doorstep
from doorstep.bootstrap import data_path, pinned
from doorstep.cli.output import Output, say
from doorstep.config import Settings, secrets_of
from doorstep.errors import ConfigError, DoorstepError, StoreUnavailable
from doorstep.signals import run_until_stopped
from doorstep.stores.open import store_from_url
from doorstep.telemetry.facts import Telemetry
from doorstep.telemetry.log_writer import open_log
from doorstep.telemetry.redaction import safe_message, shown_url

Command = Callable[[Telemetry, asyncio.Event], Awaitable[None]]


def run_command(settings: Settings, command: Command, log_to: int = 1) -> int:
    """Run until the command ends or a signal asks it to; the exit code tells how it went. `log_to` is a file handle."""
    log = open_log(settings.log_level, settings.log_format, log_to, secrets_of(settings))
    raise_file_limit()
    try:
        run_until_stopped(lambda stop: command(Telemetry(log), stop))
        return 0
    except ConfigError:
        raise
    except DoorstepError as error:
        say(f"doorstep: {error}")
        return 1
    except Exception as error:  # people get a sentence, the log gets the traceback
        logging.getLogger("doorstep").exception("stopped by an unforeseen error")
        say(f"doorstep: stopped by an unforeseen error, {safe_message(error)}; the log has the details")
        return 1
    finally:
        log.close()


def raise_file_limit() -> None:
    """As many open files as this process may have: each try under way is one, and the usual 1,024 are soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def naming_database(settings: Settings) -> Iterator[None]:
    """Whatever goes wrong while it is opened, say which database it was about."""
    try:
        yield
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"the database {shown_url(settings.database_url)} cannot be reached: {error}; check the URL"
        ) from None
    except DoorstepError:
        raise
    except Exception as error:
        logging.getLogger("doorstep").debug("the database could not be opened", exc_info=True)
        what = safe_message(error).partition("\n")[0]
        raise DoorstepError(
            f"the database {shown_url(settings.database_url)} cannot be opened: {what}; check the URL and what is there"
        ) from None


def key_line(doorstep: Doorstep) -> tuple[str, ...]:
    """The admin key, where this start had to make one."""
    key = doorstep.generated_admin_key
    return () if key is None else (f"Admin key, shown only this once: {key}",)


def place_of_data(settings: Settings) -> str:
    """The folder, or the database's URL."""
    return str(data_path(settings) or shown_url(settings.database_url))


def spare_collector() -> None:
    """To be called once started: what exists now (libraries, routes) stays, and is not looked at again for garbage.

    Otherwise those looks take a fifth of the CPU of every accepted request.
    """
    gc.collect()
    gc.freeze()


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
