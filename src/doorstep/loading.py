"""Loads the program that `--app module:name` names, from the command line or in a function on AWS."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from doorstep.app import Doorstep
from doorstep.bootstrap import pinned_url
from doorstep.config import PREFIX
from doorstep.errors import ConfigError
from doorstep.telemetry.redaction import scrubbed, shown_url


def load_app(app: str, given: Mapping[str, object], *, isolate: bool = False) -> Doorstep:
    """The Doorstep at `module:name`. If `name` refers to a function, the function is called and must return the
    Doorstep."""
    module_name, _, name = app.partition(":")
    if not module_name or not name:
        raise ConfigError(f"--app must be module:name, got {app!r}; for example --app shop.events:doorstep")
    for setting, value in given.items():
        if value is not None:  # the program's `Doorstep()` reads the environment
            os.environ[f"{PREFIX}{setting.upper()}"] = str(value)
    sys.path.insert(0, os.getcwd())
    doorstep = _loaded(app, module_name, name)
    if not isinstance(doorstep, Doorstep):
        raise ConfigError(f"--app must name a Doorstep, got {type(doorstep).__name__} for {app}")
    if (database_url := given.get("database_url")) is not None:
        _check_database(app, doorstep, str(database_url))
    doorstep.registry.loaded_from = app
    doorstep.registry.isolate_all = isolate
    return doorstep


def _check_database(app: str, doorstep: Doorstep, expected: str) -> None:
    """Refuse to start if the program's Doorstep uses a database other than the one that --database names."""
    if doorstep.settings.database_url != pinned_url(expected):
        raise ConfigError(
            f"--database cannot be used with --app {app}, which has {shown_url(doorstep.settings.database_url)} in its "
            "code; leave out --database, or create the program's Doorstep() without a URL"
        )


def _loaded(app: str, module_name: str, name: str) -> object:
    with _naming_app(app, module_name):
        module = importlib.import_module(module_name)
    if not hasattr(module, name):
        candidates = [known for known, value in vars(module).items() if isinstance(value, Doorstep)]
        hint = f"it has {', '.join(candidates)}" if candidates else "it has no Doorstep at all"
        raise ConfigError(f"--app {app}: module {module_name} has no {name!r}; {hint}")
    found = getattr(module, name)
    if isinstance(found, Doorstep) or not callable(found):
        return found
    with _naming_app(app, module_name):
        return found()


@contextmanager
def _naming_app(app: str, module_name: str) -> Iterator[None]:
    """Turn any error of the user's code into a ConfigError that says where in the code it was raised."""
    try:
        yield
    except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code can raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            raise ConfigError(
                f"--app {app}: there is no module {missing!r} in {os.getcwd()} or on Python's path; "
                "run the command in the folder that contains it"
            ) from None
        reason = f"{type(error).__name__}: {scrubbed(str(error))}{_where(error)}"
        raise ConfigError(f"--app {app} cannot be loaded: {reason}") from None


def _where(error: BaseException) -> str:
    """The last line of the user's own code in the traceback."""
    if isinstance(error, SyntaxError):
        return ""  # the error message already contains the line of code
    folders = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(__file__)))
    libraries = ("<", *(folder + os.sep for folder in folders))
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(libraries)]
    return f"; {os.path.relpath(frames[-1].filename)}, line {frames[-1].lineno}: {frames[-1].line}" if frames else ""
