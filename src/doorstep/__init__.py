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
    from doorstep.model.batch import Batch, BatchStatus, SubmissionAttempt
    from doorstep.model.dead_letter import DeadLetter
    from doorstep.model.endpoint import CircuitRules
    from doorstep.model.entity import Entity
    from doorstep.model.posting import Posted
    from doorstep.model.retry_policy import RetryPolicy
    from doorstep.model.submission import Receipt
    from doorstep.pipelines.pipeline import Pipeline
    from doorstep.pipelines.plan import Gate, Stage
    from doorstep.wire.received import Received

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
    "DeadLetter": "doorstep.model.dead_letter",
    "Doorstep": "doorstep.app",
    "Entity": "doorstep.model.entity",
    "Gate": "doorstep.pipelines.plan",
    "Permanent": "doorstep.errors",
    "Pipeline": "doorstep.pipelines.pipeline",
    "Posted": "doorstep.model.posting",
    "Receipt": "doorstep.model.submission",
    "Received": "doorstep.wire.received",
    "RetryPolicy": "doorstep.model.retry_policy",
    "Settings": "doorstep.config",
    "Stage": "doorstep.pipelines.plan",
    "SubmissionAttempt": "doorstep.model.batch",
    "Transient": "doorstep.errors",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'doorstep' has no attribute {name!r}")
