"""The dead letters: what the machine has given up on. Retry, edit and retry, resolve, delete."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from doorstep.api.auth import Caller
from doorstep.api.deliveries import after_act
from doorstep.api.delivery_items import DeadLettersOut, GroupOut, GroupsOut, LettersAsked, dead_letter_item
from doorstep.api.event_schemas import DeliveryOut, ReasonIn
from doorstep.api.raw_bodies import LETTER_RETRY_OPERATION, LetterRetryBody, given
from doorstep.api.routing import group
from doorstep.api.schemas import CountedPagination, Pagination
from doorstep.app import Doorstep
from doorstep.model.act import ActKind
from doorstep.model.delivery import DEAD_STATES

_NO_REASON = ReasonIn()


def dead_letter_routes(doorstep: Doorstep) -> APIRouter:
    router = group("/v1/dead-letters", "dead letters")

    @router.get("")
    async def list_dead_letters(asked: Annotated[LettersAsked, Query()], caller: Caller) -> DeadLettersOut:
        """Deliveries that the machine has given up on, newest first; archived ones only if asked for."""
        page, count = await doorstep.components.reader.dead_letters(
            caller.org_id, asked.letters(), asked.cursor, asked.limit
        )
        described = await doorstep.components.reader.described(caller.org_id, page.items)
        return DeadLettersOut(
            dead_letters=[dead_letter_item(one) for one in described],
            pagination=CountedPagination.counted(page, asked.limit, count),
        )

    @router.get("/groups")
    async def list_groups(asked: Annotated[LettersAsked, Query()], caller: Caller) -> GroupsOut:
        """The same by cause: endpoint, error code and message, but for the message's numbers and names."""
        page = await doorstep.components.reader.cause_groups(caller.org_id, asked.letters(), asked.cursor, asked.limit)
        names = await doorstep.components.reader.endpoint_names(
            caller.org_id, (group.endpoint_id for group in page.items)
        )
        return GroupsOut(
            groups=[GroupOut.of(group, names[group.endpoint_id]) for group in page.items],
            pagination=Pagination.of(page, asked.limit),
        )

    @router.post("/{delivery_id}/retry", status_code=202, openapi_extra=LETTER_RETRY_OPERATION)
    async def retry_dead_letter(delivery_id: UUID, caller: Caller, body: LetterRetryBody) -> DeliveryOut:
        """Try it again in 5 seconds, with a fresh count; with `payload`, deliver that from now on instead."""
        payload = given(body.payload)
        return await after_act(doorstep, ActKind.RETRY, delivery_id, caller, DEAD_STATES, body.reason, payload)

    @router.post("/{delivery_id}/resolve")
    async def resolve_dead_letter(delivery_id: UUID, caller: Caller, body: ReasonIn = _NO_REASON) -> DeliveryOut:
        """Say that it needs no delivery."""
        return await after_act(doorstep, ActKind.RESOLVE, delivery_id, caller, DEAD_STATES, body.reason)

    @router.delete("/{delivery_id}", status_code=204)
    async def delete_dead_letter(delivery_id: UUID, caller: Caller) -> None:
        """Take it off every list. Its attempt log stays."""
        await doorstep.components.deliveries.act_on(ActKind.DELETE, caller.org_id, delivery_id, caller.prefix)

    return router
