"""`--app module:name`: someone's own program is imported, and what goes wrong in it is said so that they find it."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType

from doorstep.app import Doorstep
from doorstep.bootstrap import pinned_url
from doorstep.config import Settings
from doorstep.config_errors import PREFIX
from doorstep.errors import ConfigError
from doorstep.telemetry.redaction import scrubbed, shown_url

_EXAMPLE = "for example --app shop.events:doorstep"


def doorstep_for(settings: Settings, app: str | None, *, isolate: bool, said: Mapping[str, object] = {}) -> Doorstep:
    """The program's own Doorstep if one is named, else a plain one. `said` is what the command line said."""
    if app is not None:
        return load(app, said, isolate=isolate)
    if isolate:
        raise ConfigError("--isolate is about the handlers of your own program; name it with --app module:name")
    return Doorstep(settings)


def load(app: str, said: Mapping[str, object], *, isolate: bool = False) -> Doorstep:
    """The Doorstep that `module:name` names, or that the function of this name makes."""
    module_name, _, name = app.partition(":")
    if not module_name or not name:
        raise ConfigError(f"--app must be module:name, got {app!r}; {_EXAMPLE}")
    _hand_on(said)
    sys.path.insert(0, os.getcwd())
    doorstep = _made(app, _found(app, _imported(app, module_name), name))
    if not isinstance(doorstep, Doorstep):
        raise ConfigError(f"--app must name a Doorstep, got {type(doorstep).__name__} for {app}")
    if (wanted := said.get("database_url")) is not None:
        _check_database(app, doorstep, str(wanted))
    doorstep.registry.loaded_from = app
    doorstep.registry.isolate_all = isolate
    return doorstep


def _hand_on(said: Mapping[str, object]) -> None:
    """For a Doorstep() that is made without saying otherwise. What nobody typed is for the program to find out."""
    for setting, value in said.items():
        if value is not None:
            os.environ[f"{PREFIX}{setting.upper()}"] = str(value)


def _check_database(app: str, doorstep: Doorstep, wanted: str) -> None:
    """Rather none than another database than the one that was asked for."""
    if doorstep.settings.database_url != pinned_url(wanted):
        raise ConfigError(
            f"--database cannot be used with --app {app}, which has {shown_url(doorstep.settings.database_url)} in its code; leave "
            "--database out, or let the program make its Doorstep() without a URL"
        )


def _imported(app: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"--app {app}: there is no module {error.name!r} in {os.getcwd()} nor on Python's path; "
                "start it in the folder that holds it"
            ) from None
        raise _unloadable(app, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever their module does
        raise _unloadable(app, error) from None


def _found(app: str, module: ModuleType, name: str) -> object:
    if hasattr(module, name):
        return getattr(module, name)
    theirs = [known for known, value in vars(module).items() if isinstance(value, Doorstep)]
    hint = f"it has {', '.join(theirs)}" if theirs else "it has no Doorstep at all"
    raise ConfigError(f"--app {app}: module {module.__name__} has no {name!r}; {hint}")


def _made(app: str, found: object) -> object:
    if isinstance(found, Doorstep) or not callable(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:  # noqa: BLE001  as above
        raise _unloadable(app, error) from None


def _unloadable(app: str, error: BaseException) -> ConfigError:
    return ConfigError(f"--app {app} cannot be loaded: {type(error).__name__}: {scrubbed(str(error))}{_where(error)}")


def _where(error: BaseException) -> str:
    """The line that they wrote: the last one that is not in a library."""
    if isinstance(error, SyntaxError):
        return ""  # says it itself
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _theirs(frame.filename)]
    return f"; {os.path.relpath(frames[-1].filename)}, line {frames[-1].lineno}: {frames[-1].line}" if frames else ""


def _theirs(path: str) -> bool:
    libraries = (sys.prefix + os.sep, sys.base_prefix + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)
    return not path.startswith(("<", *libraries))
