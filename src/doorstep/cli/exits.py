"""How commands end: the exit codes, and how every error becomes one sentence on standard error and one of them.

Scripts rely on the codes, so they are few and mean one thing each. A traceback is for us, not for users: it is shown
only when the log level is `debug`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from enum import IntEnum

from doorstep.cli.output import visible
from doorstep.errors import ConfigError, Conflict, DoorstepError, InvalidInput, NotFound, StoreUnavailable
from doorstep.telemetry.redaction import safe_message, traceback_of


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5


MEANINGS = {
    ExitCode.OK: "It did what was asked.",
    ExitCode.FAILED: "It ran, and what was asked did not come about: a delivery failed, a wait ended, a problem was found.",
    ExitCode.USAGE: "An option, a setting or the input cannot be used; the sentence names it.",
    ExitCode.NOT_FOUND: "There is no such thing, or it belongs to another organization.",
    ExitCode.REFUSED: "The key is unknown or its role does not allow it, or the present state of the thing does not.",
    ExitCode.UNREACHABLE: "The server cannot be reached, or cannot answer now; the same command may work later.",
}
EXIT_CODES_HELP = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 not found, 4 refused (key, role or state), "
    "5 server not reachable."
)

Run = Callable[[], int | None]


def exit_code_of(run: Run) -> int:
    """Run a command. What goes wrong is said in one sentence on standard error; the code tells which kind it was."""
    try:
        return run() or ExitCode.OK
    except BrokenPipeError:
        _leave_output()
        return ExitCode.OK
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except DoorstepError as error:
        complain(str(error))
        return code_of(error)
    except Exception as error:  # noqa: BLE001  people get a sentence, whatever it was
        complain(f"stopped by an unforeseen error, {safe_message(error)}; {_HOW_TO_SEE_MORE}")
        if os.environ.get("DOORSTEP_LOG_LEVEL", "").lower() == "debug":
            print(traceback_of(error), file=sys.stderr)
        return ExitCode.FAILED


def code_of(error: DoorstepError) -> ExitCode:
    """The exit code of an error, be it of this machine or of the server."""
    for code, kinds in _kinds().items():
        if isinstance(error, kinds):
            return code
    return ExitCode.FAILED


def _kinds() -> dict[ExitCode, tuple[type[DoorstepError], ...]]:
    from doorstep.client import errors as remote  # here, because it loads an HTTP client

    return {
        ExitCode.USAGE: (ConfigError, InvalidInput, remote.Invalid),
        ExitCode.NOT_FOUND: (NotFound, remote.NotFound),
        ExitCode.REFUSED: (Conflict, remote.Conflict, remote.Forbidden, remote.Unauthenticated),
        ExitCode.UNREACHABLE: (StoreUnavailable, remote.Unreachable, remote.Unavailable, remote.Overloaded),
    }


def complain(sentence: str) -> None:
    """On standard error: standard output is for answers."""
    print(visible(f"doorstep: {sentence}"), file=sys.stderr, flush=True)


_HOW_TO_SEE_MORE = "run it again with DOORSTEP_LOG_LEVEL=debug to see where"


def _leave_output() -> None:
    """Whoever read our output has left (`| head`): not our failure. Python would complain again when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
