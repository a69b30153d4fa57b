"""The environment of a function: a program and its settings, under the names that a deployment on AWS uses.

`DOORSTEP_<NAME>` works here as everywhere and overrides these names.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from urllib.parse import urlencode

from doorstep.app import Doorstep
from doorstep.config import Settings
from doorstep.errors import ConfigError
from doorstep.loading import load_app

VARIABLES = {"RETRY_DELAYS": "retry_delays", "MAX_RETRY_ATTEMPTS": "max_retry_attempts", "LOG_LEVEL": "log_level"}
"""More names of settings."""
_DATABASE = "DOORSTEP_DATABASE_URL"


def program(environ: MutableMapping[str, str]) -> Doorstep:
    """The program that `APP_MODULE` names as `module:name`, else Doorstep alone. It is not open yet."""
    if not environ.get(_DATABASE):
        environ[_DATABASE] = database_url(environ)
    if app := environ.get("APP_MODULE"):
        return load_app(app, {})
    return Doorstep(Settings.with_defaults({}, VARIABLES))


def database_url(environ: Mapping[str, str]) -> str:
    """The URL of the table and the queue that `EVENTS_TABLE_NAME` and `DELIVERY_QUEUE_URL` name."""
    table, queue = environ.get("EVENTS_TABLE_NAME"), environ.get("DELIVERY_QUEUE_URL")
    if not table or not queue:
        raise ConfigError(
            f"EVENTS_TABLE_NAME and DELIVERY_QUEUE_URL must name the table and the queue, got {table!r} and {queue!r};"
            f" set both, or {_DATABASE}"
        )
    options = {"region": environ.get("AWS_REGION", ""), "queue": queue}
    return f"dynamodb://{table}?{urlencode({name: value for name, value in options.items() if value})}"
