"""`doorstep worker` and `migrate`, and code shared by all long-running commands: log, event loop, errors, `--app`."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType

from doorstep.app import Doorstep
from doorstep.bootstrap import data_path, pinned
from doorstep.cli.options import settings_from
from doorstep.cli.output import Output, say
from doorstep.cli.service_manager import notify
from doorstep.config import Settings, secrets_of
from doorstep.errors import ConfigError, DoorstepError, StoreUnavailable
from doorstep.loading import load_app
from doorstep.loop_binding import run_until_stopped
from doorstep.stores.open import grant_users, store_from_url
from doorstep.telemetry.facts import LogLine, Telemetry, json_format
from doorstep.telemetry.logs import open_log
from doorstep.telemetry.redaction import safe_message, shown_url

Command = Callable[[Telemetry, asyncio.Event], Awaitable[None]]


def run_command(
    settings: Settings, command: Command, log_fd: int = 1, log_lines: Mapping[str, LogLine] = MappingProxyType({})
) -> int:
    """Run until the command ends or a signal stops it; return the exit code. `log_fd` is the file descriptor of the
    log; `log_lines` are the changes that the program makes to it."""
    lines = json_format(settings.service_name, log_lines)
    log = open_log(settings.log_level, settings.log_format, log_fd, secrets_of(settings), lines)
    raise_file_limit()
    try:
        run_until_stopped(lambda stop: command(Telemetry(log), stop))
        return 0
    except ConfigError:
        raise
    except DoorstepError as error:
        say(f"doorstep: {error}")
        return 1
    except Exception as error:  # the user sees one sentence; the log has the traceback
        logging.getLogger("doorstep").exception("stopped by an unexpected error")
        say(f"doorstep: stopped by an unexpected error, {safe_message(error)}; see the log for details")
        return 1
    finally:
        log.close()


def raise_file_limit() -> None:
    """Raise the limit on open files to the hard limit. Every attempt in flight needs an open file, and the usual limit
    of 1,024 is soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def naming_database(settings: Settings) -> Iterator[None]:
    """Add the database's URL to any error raised inside the `with` block."""
    database = shown_url(settings.database_url)
    try:
        yield
    except StoreUnavailable as error:
        raise StoreUnavailable(f"cannot reach the database {database}: {error}; check the URL") from None
    except DoorstepError:
        raise
    except Exception as error:
        logging.getLogger("doorstep").debug("cannot open the database", exc_info=True)
        reason = safe_message(error).partition("\n")[0]
        raise DoorstepError(f"cannot open the database {database}: {reason}; check the URL and the file") from None


def admin_key_line(doorstep: Doorstep) -> tuple[str, ...]:
    """The line that shows the admin key, if one was created at this start."""
    key = doorstep.generated_admin_key
    return () if key is None else (f"Admin key, shown only once: {key}",)


def data_location(settings: Settings) -> str:
    """The folder of an embedded database, or the URL of any other database."""
    return str(data_path(settings) or shown_url(settings.database_url))


def freeze_startup_objects() -> None:
    """Exclude all existing objects (libraries, routes) from garbage collection. Call it once startup is complete.

    These objects are never freed. Scanning them would take a fifth of the CPU time of every accepted request.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def migrate(settings: Settings, output: Output, users: str | None) -> int:
    """Migrate the database, give the role `users` its access, and print the location of the database."""

    async def command(_: Telemetry, __: asyncio.Event) -> None:
        store = store_from_url(pinned(settings).database_url)
        with naming_database(settings):
            if (folder := data_path(settings)) is not None:
                folder.mkdir(parents=True, exist_ok=True)
            await store.migrate()
            if users is not None:
                await grant_users(settings.database_url, users)
        await store.close()
        say(f"The tables in {data_location(settings)} are up to date")
        if output.as_json:
            output.json({"migrated": True, "database": data_location(settings)})

    return run_command(settings, command)


def work(given: Mapping[str, object], app: str | None, *, isolate: bool, end_with_parent: bool) -> int:
    """Run a worker until a signal arrives. `given` holds the settings from the command line."""
    parent = Parent() if end_with_parent else None
    settings = settings_from(**given)
    doorstep = doorstep_for(settings, app, given, isolate=isolate)

    async def command(telemetry: Telemetry, stop: asyncio.Event) -> None:
        doorstep.telemetry.subscribe(telemetry.emit_all)
        doorstep.telemetry.failures = None  # the log of this command has them
        if parent is not None:
            loop = asyncio.get_running_loop()
            parent.on_end(lambda: loop.call_soon_threadsafe(_leave, doorstep, stop))
        with naming_database(doorstep.settings):
            await doorstep.open(admin_key=True)
        try:
            if end_with_parent:
                doorstep.components.guard.refuse_own(settings.host, settings.port)
            doorstep.start()
            freeze_startup_objects()
            if not end_with_parent:
                notify("READY=1")
                say(
                    f"A Doorstep worker delivers from {data_location(doorstep.settings)}; Ctrl-C stops it",
                    *admin_key_line(doorstep),
                )
            await stop.wait()
        finally:
            if not end_with_parent:
                notify("STOPPING=1")
            await doorstep.close()

    return run_command(doorstep.settings, command, log_lines=doorstep.server.log_lines)


_ORPHAN_GRACE_SECONDS = 1.0
"""How long a worker whose server has exited waits for its attempts in flight. The server is restarted meanwhile."""
_ORPHAN_SECONDS_MAX = 4.0
"""When such a worker is ended, however busy it is and whatever it waits for. It is as safe as killing it."""


class Parent:
    """The supervisor that has started this process. Standard input is a pipe from it, to which it never writes, so end of
    file means that it has exited. A thread waits for that from the start: the event loop may not run yet, or wait for
    the database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = False
        self._then: Callable[[], object] | None = None
        threading.Thread(target=self._watch, name="doorstep-parent", daemon=True).start()

    def on_end(self, then: Callable[[], object]) -> None:
        """Call this, in a thread, when the supervisor exits, or now if it has exited already."""
        with self._lock:
            self._then = then
            ended = self._ended
        if ended:
            then()

    def _watch(self) -> None:
        while os.read(0, 1_024):
            """Continue to wait."""
        with self._lock:
            self._ended = True
            then = self._then
        if then is not None:
            with suppress(RuntimeError):  # the event loop is closed: this process is about to exit
                then()
        time.sleep(_ORPHAN_SECONDS_MAX)
        os._exit(1)


def _leave(doorstep: Doorstep, stop: asyncio.Event) -> None:
    """Stop soon, because the supervisor has exited."""
    opened = doorstep.binding.opened
    if opened is not None and opened.worker is not None:
        opened.worker.grace_seconds = min(opened.worker.grace_seconds, _ORPHAN_GRACE_SECONDS)
    stop.set()


# -- --app module:name -------------------------------------------------------------------------------------


def doorstep_for(settings: Settings, app: str | None, given: Mapping[str, object], *, isolate: bool) -> Doorstep:
    """The program's own Doorstep if --app names one, otherwise a new one. `given` holds the command line's settings."""
    if app is not None:
        return load_app(app, given, isolate=isolate)
    if isolate:
        raise ConfigError("--isolate applies to the handlers of your own program; name it with --app module:name")
    return Doorstep(settings)
