"""Doorstep: reliable delivery for everyone who writes Python.

    from doorstep import Doorstep, Permanent, RetryPolicy, Transient

Names are loaded when they are first used, so that importing the package stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doorstep.app import Doorstep
    from doorstep.config import Settings
    from doorstep.errors import Permanent, Transient
    from doorstep.model.retry_policy import RetryPolicy
    from doorstep.wire.handler_transport import Received

__version__ = "0.1.0"

__all__ = ["Doorstep", "Permanent", "Received", "RetryPolicy", "Settings", "Transient", "__version__"]

_HOMES = {
    "Doorstep": "doorstep.app",
    "Permanent": "doorstep.errors",
    "Received": "doorstep.wire.handler_transport",
    "RetryPolicy": "doorstep.model.retry_policy",
    "Settings": "doorstep.config",
    "Transient": "doorstep.errors",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'doorstep' has no attribute {name!r}")
