"""The verbs of the store protocol that are scripts, for a SQL store to inherit: one module for each of its chapters.

A store adds two ways of running a script (scripted.py), and the hot verbs.
"""

from __future__ import annotations

from doorstep.stores.sql.queries.verbs.alerts import AlertVerbs
from doorstep.stores.sql.queries.verbs.bulk import BulkVerbs
from doorstep.stores.sql.queries.verbs.endpoints import EndpointVerbs
from doorstep.stores.sql.queries.verbs.entities import EntityVerbs
from doorstep.stores.sql.queries.verbs.figures import FigureVerbs
from doorstep.stores.sql.queries.verbs.house import HouseVerbs
from doorstep.stores.sql.queries.verbs.lists import ListVerbs
from doorstep.stores.sql.queries.verbs.operators import OperatorVerbs
from doorstep.stores.sql.queries.verbs.orgs import OrgVerbs
from doorstep.stores.sql.queries.verbs.outbox import OutboxVerbs
from doorstep.stores.sql.queries.verbs.reading import ReadingVerbs
from doorstep.stores.sql.queries.verbs.workers import WorkerVerbs

__all__ = ["ColdVerbs"]


class ColdVerbs(
    OutboxVerbs,
    EndpointVerbs,
    OperatorVerbs,
    BulkVerbs,
    EntityVerbs,
    AlertVerbs,
    ReadingVerbs,
    ListVerbs,
    FigureVerbs,
    HouseVerbs,
    OrgVerbs,
    WorkerVerbs,
):
    """Every verb outside the hot path."""
