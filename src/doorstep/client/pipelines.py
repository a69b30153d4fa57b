"""Batches, and entities on their way through the pipelines of the program that the server runs with."""

from __future__ import annotations

from doorstep.client.call import Call, Page, delete, get, one, paged, post
from doorstep.client.verbs import Group, R_co, each_of, verb
from doorstep.schemas.batches import Batch, BatchPage, BatchStatus, Submission, SubmissionPage
from doorstep.schemas.pipelines import Entity, EntityChange, EntityHistoryPage, EntityPage, Pipeline, PipelinePage
from doorstep.schemas.shape import Id

_ENTITIES = "/v1/pipelines/{pipeline}/entities"
_ENTITY = f"{_ENTITIES}/{{entity_id}}"


class Pipelines(Group[R_co]):
    """`client.pipelines`."""

    @verb
    def page(self) -> Call[Page[Pipeline]]:
        """The pipelines there are, each with its statuses."""
        return get(paged(PipelinePage), "/v1/pipelines")

    @verb
    def entities(
        self,
        pipeline: str,
        *,
        status: str | None = None,
        archived: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[Entity]]:
        """One page of a pipeline's entities, newest first; archived ones only if asked for."""
        query = {"status": status, "archived": archived, "limit": limit, "cursor": cursor}
        return get(paged(EntityPage), _ENTITIES, pipeline, query=query)

    each_entity = each_of(entities)

    @verb
    def read(self, pipeline: str, entity_id: str) -> Call[Entity]:
        """One entity as it stands."""
        return get(one(Entity), _ENTITY, pipeline, entity_id)

    @verb
    def history(self, pipeline: str, entity_id: str) -> Call[Page[EntityChange]]:
        """Every change of its status, oldest first."""
        return get(paged(EntityHistoryPage), f"{_ENTITY}/history", pipeline, entity_id)

    @verb
    def retry(self, pipeline: str, entity_id: str, *, reason: str | None = None) -> Call[dict[str, str]]:
        """Send a failed, dead or archived one through again from the start."""
        return post(one(dict[str, str]), f"{_ENTITY}/retry", pipeline, entity_id, body={"reason": reason})

    @verb
    def approve(self, pipeline: str, entity_id: str, *, gate: str | None = None) -> Call[Entity]:
        """Let it through the gate that it waits at; refused if that is not the one that is named."""
        return post(one(Entity), f"{_ENTITY}/approve", pipeline, entity_id, body={"gate": gate})

    @verb
    def reject(
        self, pipeline: str, entity_id: str, *, reason: str | None = None, gate: str | None = None
    ) -> Call[Entity]:
        """Send it from the gate that it waits at to the dead letters; refused if that is not the one that is named."""
        return post(one(Entity), f"{_ENTITY}/reject", pipeline, entity_id, body={"reason": reason, "gate": gate})

    @verb
    def delete(self, pipeline: str, entity_id: str) -> Call[None]:
        """Remove one and its history, in whatever status."""
        return delete(_ENTITY, pipeline, entity_id)


class Batches(Group[R_co]):
    """`client.batches`. They are sent as events are; their id is that of the event."""

    @verb
    def page(
        self,
        *,
        status: BatchStatus | None = None,
        event_type: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Call[Page[Batch]]:
        """One page, newest first."""
        query = {"status": status, "event_type": event_type, "limit": limit, "cursor": cursor}
        return get(paged(BatchPage), "/v1/batches", query=query)

    each = each_of(page)

    @verb
    def read(self, batch_id: Id) -> Call[Batch]:
        """How it stands."""
        return get(one(Batch), "/v1/batches/{batch_id}", batch_id)

    @verb
    def attempts(self, batch_id: Id) -> Call[Page[Submission]]:
        """Its carrier log: every submission in order."""
        return get(paged(SubmissionPage), "/v1/batches/{batch_id}/attempts", batch_id)

    @verb
    def resubmit(self, batch_id: Id, *, reason: str | None = None) -> Call[Batch]:
        """Submit it again, at once and with all its retries. Refused unless it is FAILED."""
        return post(one(Batch), "/v1/batches/{batch_id}/resubmit", batch_id, body={"reason": reason})
