"""A document pipeline with nine statuses.

    uploaded ─▶ extracting ─▶ grounding ─▶ pending_review ─▶ complete

If the text of a document cannot be extracted, its status between attempts is `extraction_failed`; if its sources cannot
be found, the status is `grounding_failed`. After the third attempt the document is a `dead_letter`, and if nobody acts
on it for a week, it is `archived`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from doorstep import Doorstep, Entity, Gate, Permanent, Pipeline, Stage, Transient

_SOURCE = re.compile(r"\[(\w+)\]")


class Protocols:
    """Documents in one folder, their sources in another."""

    def __init__(self, folder: Path) -> None:
        self.documents = folder / "documents"
        self.sources = folder / "sources"
        self.pipeline = Pipeline(
            "protocol",
            first="uploaded",
            stages=[
                Stage("extracting", failed="extraction_failed"),
                Stage("grounding", failed="grounding_failed"),
                Gate("pending_review"),
            ],
            last="complete",
            dead="dead_letter",
            archived="archived",
            archive_after_days=7,
        )
        self.pipeline.stage("extracting")(self.extract)
        self.pipeline.stage("grounding")(self.ground)

    def declare(self, doorstep: Doorstep) -> None:
        for folder in (self.documents, self.sources):
            folder.mkdir(parents=True, exist_ok=True)
        doorstep.add(self.pipeline)

    async def upload(self, protocol_id: str, content: bytes) -> Entity:
        """Store the file, then create the entity. The file comes first because stages may begin as soon as the entity
        exists."""
        self.replace(protocol_id, content)
        return await self.pipeline.start({"file": f"{protocol_id}.txt"}, protocol_id)

    def replace(self, protocol_id: str, content: bytes) -> None:
        (self.documents / f"{protocol_id}.txt").write_bytes(content)

    def extract(self, protocol: Entity) -> dict[str, Any]:
        """A plain function, which runs in a thread. Its result replaces the entity's data."""
        try:
            text = (self.documents / protocol.data["file"]).read_text("utf-8")
        except UnicodeDecodeError:
            raise Permanent("INVALID_FORMAT", "The document is a picture, not a text.") from None
        return {**protocol.data, "words": len(text.split()), "cites": sorted(set(_SOURCE.findall(text)))}

    async def ground(self, protocol: Entity) -> None:
        """An async function. It returns nothing, so the data stays as it is."""
        missing = [name for name in protocol.data["cites"] if not (self.sources / name).exists()]
        if missing:
            raise Transient("SOURCE_MISSING", f"{len(missing)} of the sources that it cites cannot be found.")
