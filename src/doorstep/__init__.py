"""Doorstep: reliable delivery for everyone who writes Python.

    from doorstep import Doorstep, Permanent, RetryPolicy, Transient

Importing the package is fast: each name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doorstep.app import Doorstep
    from doorstep.config import Settings
    from doorstep.errors import Permanent, Transient
    from doorstep.model.batch import Batch, BatchStatus, SubmissionAttempt
    from doorstep.model.delivery import DeadLetter
    from doorstep.model.endpoint import CircuitRules, RetryPolicy
    from doorstep.model.outbox import Posted
    from doorstep.pipelines.pipeline import Pipeline
    from doorstep.pipelines.plan import Gate, Stage
    from doorstep.schemas.events import Receipt
    from doorstep.schemas.pipelines import Entity
    from doorstep.stores.program_sql import Sql
    from doorstep.transports.handler_replies import Received

__version__ = "0.2.0"

__all__ = [
    "Batch",
    "BatchStatus",
    "CircuitRules",
    "DeadLetter",
    "Doorstep",
    "Entity",
    "Gate",
    "Permanent",
    "Pipeline",
    "Posted",
    "Receipt",
    "Received",
    "RetryPolicy",
    "Settings",
    "Sql",
    "Stage",
    "SubmissionAttempt",
    "Transient",
    "__version__",
]

_NAMES = {
    "doorstep.app": ("Doorstep",),
    "doorstep.config": ("Settings",),
    "doorstep.errors": ("Permanent", "Transient"),
    "doorstep.model.batch": ("Batch", "BatchStatus", "SubmissionAttempt"),
    "doorstep.model.delivery": ("DeadLetter",),
    "doorstep.model.endpoint": ("CircuitRules", "RetryPolicy"),
    "doorstep.model.outbox": ("Posted",),
    "doorstep.pipelines.pipeline": ("Pipeline",),
    "doorstep.pipelines.plan": ("Gate", "Stage"),
    "doorstep.schemas.events": ("Receipt",),
    "doorstep.schemas.pipelines": ("Entity",),
    "doorstep.stores.program_sql": ("Sql",),
    "doorstep.transports.handler_replies": ("Received",),
}


def __getattr__(name: str) -> object:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'doorstep' has no attribute {name!r}")
