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
    from doorstep.model.entity import Entity
    from doorstep.model.event import Receipt
    from doorstep.model.outbox import Posted
    from doorstep.pipelines.pipeline import Pipeline
    from doorstep.pipelines.plan import Gate, Stage
    from doorstep.transports.handler_replies import Received

__version__ = "0.1.0"

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
    "Stage",
    "SubmissionAttempt",
    "Transient",
    "__version__",
]

_HOMES = {
    "Batch": "doorstep.model.batch",
    "BatchStatus": "doorstep.model.batch",
    "CircuitRules": "doorstep.model.endpoint",
    "DeadLetter": "doorstep.model.delivery",
    "Doorstep": "doorstep.app",
    "Entity": "doorstep.model.entity",
    "Gate": "doorstep.pipelines.plan",
    "Permanent": "doorstep.errors",
    "Pipeline": "doorstep.pipelines.pipeline",
    "Posted": "doorstep.model.outbox",
    "Receipt": "doorstep.model.event",
    "Received": "doorstep.transports.handler_replies",
    "RetryPolicy": "doorstep.model.endpoint",
    "Settings": "doorstep.config",
    "Stage": "doorstep.pipelines.plan",
    "SubmissionAttempt": "doorstep.model.batch",
    "Transient": "doorstep.errors",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'doorstep' has no attribute {name!r}")
