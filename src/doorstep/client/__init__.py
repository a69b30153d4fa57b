"""Talking to a running Doorstep: `Client` for ordinary programs, `AsyncClient` for asyncio.

    from doorstep.client import Client

It loads nothing of the engine.
"""

from __future__ import annotations

from doorstep.client.call import NEVER, Page, Retrying
from doorstep.client.clients import AsyncClient, Client
from doorstep.client.errors import (
    ApiError,
    ClientError,
    Conflict,
    DeliveryFailed,
    Forbidden,
    Invalid,
    NotFound,
    Overloaded,
    ServerFault,
    TimedOut,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WaitEnded,
)
from doorstep.client.events import NewEvent
from doorstep.client.queues import Selection
from doorstep.schemas.shape import Pagination

__all__ = [
    "NEVER",
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "Conflict",
    "DeliveryFailed",
    "Forbidden",
    "Invalid",
    "NewEvent",
    "NotFound",
    "Overloaded",
    "Page",
    "Pagination",
    "Retrying",
    "Selection",
    "ServerFault",
    "TimedOut",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "WaitEnded",
]
