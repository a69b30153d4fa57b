"""A story on a simulated clock: `python -m examples.protocols.story`."""

from __future__ import annotations

import asyncio
from typing import Any

from doorstep import Doorstep
from doorstep.client import Invalid
from examples.counterpart import Answer, running
from examples.protocols.documents import Documents
from examples.protocols.extraction import Extraction
from examples.protocols.program import create
from examples.protocols.services import Services
from examples.theatre import Theatre, play

A_WEEK = 7 * 86_400


class Story:
    def __init__(self, services: Extraction) -> None:
        self.services = services

    def create(self, **given: Any) -> Doorstep:
        self.program = create(Services(self.services.url), **given)
        self.pipeline = self.program.registry.pipelines["protocol"]
        self.documents = Documents(lambda: self.program.settings.database_url)
        return self.program

    async def upload(self, protocol_id: str, text: str) -> None:
        """Write the document and its event in one transaction."""
        await asyncio.to_thread(self.documents.upload, self.pipeline, protocol_id, text)

    async def __call__(self, stage: Theatre) -> None:
        await self.reviewed_and_complete(stage)
        await self.no_text(stage)
        await self.no_source(stage)
        await self.rejected_and_forgotten(stage)

    async def reviewed_and_complete(self, stage: Theatre) -> None:
        await self.upload("A-1", "Open the valve, as in [pump].")
        await stage.pass_time()
        stage.tell("A-1 was uploaded and read, and its source was found. Now it waits for a review:")
        await show(stage, "A-1")
        await self.pipeline.approve("A-1", "mary")
        stage.tell("Mary approves it. Its complete history:")
        await show_history(stage, "A-1")

    async def no_text(self, stage: Theatre) -> None:
        await self.upload("A-2", "\x89PNG")
        await stage.pass_time()
        stage.tell("A-2 is a picture. A retry would not help, so it becomes a dead letter immediately:")
        await show(stage, "A-2")
        self.documents.replace("A-2", "Close the valve.")
        answer = await stage.api.pipelines.retry("protocol", "A-2", reason="a text this time")
        await stage.pass_time()
        stage.tell(f"An operator replaces it with a text and retries: {answer}.")
        await show(stage, "A-2")
        try:
            await stage.api.pipelines.retry("protocol", "A-2")
        except Invalid as error:
            stage.tell(f"  Retrying it again fails with {error.status}: {error.detail}.")

    async def no_source(self, stage: Theatre) -> None:
        self.services.answers["/sources/bearing"] = Answer(404)
        await self.upload("A-3", "Grease the bearing, as in [bearing].")
        await stage.pass_time(40)
        stage.tell(
            "A-3 cites a missing source. After three attempts, 5 and 30 seconds apart, it becomes a dead letter:"
        )
        await show_history(stage, "A-3")
        del self.services.answers["/sources/bearing"]
        await stage.api.pipelines.retry("protocol", "A-3", reason="the manual has come")
        await stage.pass_time()
        stage.tell("The missing source arrives, and an operator retries A-3.")
        await show(stage, "A-3")

    async def rejected_and_forgotten(self, stage: Theatre) -> None:
        await self.pipeline.reject("A-3", "mary", "wrong bearing")
        stage.tell("Mary rejects A-3.")
        await show(stage, "A-3")
        await stage.pass_time(A_WEEK + 60)
        listed = [one.entity_id for one in await stage.api.pipelines.entities("protocol")]
        stage.tell(
            f"A week later nobody has acted on it. The list shows {', '.join(listed)}; archived entities are shown on request:"
        )
        for one in await stage.api.pipelines.entities("protocol", status="archived"):
            stage.tell(f"  {one.entity_id}: {one.status}")


async def show(stage: Theatre, protocol_id: str) -> None:
    seen = await stage.api.pipelines.read("protocol", protocol_id)
    error = f", {seen.metadata['error']['code']}: {seen.error_reason}" if seen.error_reason else ""
    stage.tell(f"  {seen.entity_id}: {seen.status}{error}")


async def show_history(stage: Theatre, protocol_id: str) -> None:
    for line in await stage.api.pipelines.history("protocol", protocol_id):
        stage.tell(f"  {line.new_status}: {line.reason}")


if __name__ == "__main__":
    with running(Extraction) as its_services:
        story = Story(its_services)
        play(story, create=story.create)
