"""The client that commands talk to a server with, made from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doorstep.config import Settings
from doorstep.errors import ConfigError

if TYPE_CHECKING:
    from doorstep.client import Client

_TRIES = 3
"""A person waits for the answer: enough to outlast a hiccup, not a restart."""
_TIMEOUT_SECONDS = 10.0


def connect(settings: Settings, *, tries: int = _TRIES, timeout_seconds: float = _TIMEOUT_SECONDS) -> Client:
    """For the server and with the key that the settings name."""
    from doorstep.client import Client, Retrying

    key = settings.api_key or settings.admin_key
    if key is None:
        raise ConfigError("a key is needed to talk to the server, got none; give --key or set DOORSTEP_API_KEY")
    return Client(settings.url, key.get_secret_value(), timeout=timeout_seconds, retrying=Retrying(tries_max=tries))
