"""What every long-running command has in common: a log, an event loop, signals, and an end that explains itself."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from doorstep.config import Settings
from doorstep.errors import ConfigError, DoorstepError
from doorstep.log_writer import open_log
from doorstep.telemetry import Telemetry

Command = Callable[[Telemetry, asyncio.Event], Awaitable[None]]


def run_command(settings: Settings, command: Command) -> int:
    """Run until the command ends or a signal asks it to; the exit code tells how it went."""
    log = open_log(settings.log_level, settings.log_format)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_until_stopped(command, Telemetry(log)))
        return 0
    except ConfigError:
        raise
    except DoorstepError as error:
        say(f"doorstep: {error}")
        return 1
    except Exception as error:  # people get a sentence, the log gets the traceback
        logging.getLogger("doorstep").exception("stopped by an unforeseen error")
        say(f"doorstep: stopped by an unforeseen error, {type(error).__name__}: {error}; the log has the details")
        return 1
    finally:
        log.close()


def say(*lines: str) -> None:
    """Words for whoever started the program. On standard error, so that the log on standard output stays clean."""
    try:
        print(*lines, sep="\n", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads them


async def _until_stopped(command: Command, telemetry: Telemetry) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, stop)
    await command(telemetry, stop)


def _on_signal(stop: asyncio.Event) -> None:
    """The first signal asks for an orderly end. The second does not wait for it: leases make that safe."""
    if stop.is_set():
        os._exit(1)
    stop.set()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    return uvloop.new_event_loop
