"""The example: `python -m examples.protocols`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from doorstep.client import Invalid
from examples.protocols.profile import Protocols
from examples.theatre import Theatre, play

A_WEEK = 7 * 86_400


class Story:
    def __init__(self, protocols: Protocols) -> None:
        self.protocols = protocols

    async def __call__(self, stage: Theatre) -> None:
        await self.reviewed_and_complete(stage)
        await self.no_text(stage)
        await self.no_source(stage)
        await self.rejected_and_forgotten(stage)

    async def reviewed_and_complete(self, stage: Theatre) -> None:
        (self.protocols.sources / "pump").write_text("The pump's manual")
        await self.protocols.upload("A-1", b"Open the valve, as in [pump].")
        await stage.pass_time()
        stage.tell("A-1 was uploaded and read, and its source was found. Now it waits for a review:")
        await show(stage, "A-1")
        await self.protocols.pipeline.approve("A-1", "mary")
        stage.tell("Mary approves it. Its complete history:")
        await show_history(stage, "A-1")

    async def no_text(self, stage: Theatre) -> None:
        await self.protocols.upload("A-2", b"\x89PNG\xff")
        await stage.pass_time()
        stage.tell("A-2 is a picture. A retry would not help, so it becomes a dead letter immediately:")
        await show(stage, "A-2")
        self.protocols.replace("A-2", b"Close the valve.")
        answer = await stage.api.pipelines.retry("protocol", "A-2", reason="a text this time")
        await stage.pass_time()
        stage.tell(f"An operator replaces it with a text and retries: {answer}.")
        await show(stage, "A-2")
        try:
            await stage.api.pipelines.retry("protocol", "A-2")
        except Invalid as error:
            stage.tell(f"  Retrying it again fails with {error.status}: {error.detail}.")

    async def no_source(self, stage: Theatre) -> None:
        await self.protocols.upload("A-3", b"Grease the bearing, as in [bearing].")
        await stage.pass_time()
        stage.tell("A-3 cites a missing source. After three attempts without delay it becomes a dead letter:")
        await show_history(stage, "A-3")
        (self.protocols.sources / "bearing").write_text("The bearing's manual")
        await stage.api.pipelines.retry("protocol", "A-3", reason="the manual has come")
        await stage.pass_time()
        stage.tell("The missing source arrives, and an operator retries A-3.")
        await show(stage, "A-3")

    async def rejected_and_forgotten(self, stage: Theatre) -> None:
        await self.protocols.pipeline.reject("A-3", "mary", "wrong bearing")
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
    with TemporaryDirectory() as folder:
        story = Story(Protocols(Path(folder)))
        play(story, story.protocols.declare)
