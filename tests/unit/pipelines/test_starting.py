"""How entities come into a pipeline."""

from __future__ import annotations

import pytest

from doorstep import Doorstep
from doorstep.errors import InvalidInput
from doorstep.pipelines.pipeline import Pipeline
from doorstep.pipelines.plan import Stage

NO_SESSION = "connection: .*got None; leave it out"


@pytest.fixture
def pipeline() -> Pipeline:
    pipeline = Pipeline("parcel", first="packed", stages=[Stage("sending", failed="sending_failed")], last="sent")
    Doorstep("memory://").add(pipeline)
    return pipeline


async def test_a_session_that_was_forgotten_to_be_made_starts_nothing(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInput, match=NO_SESSION):
        await pipeline.start({}, connection=None)


def test_nor_does_it_in_a_program_without_an_event_loop(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInput, match=NO_SESSION):
        pipeline.start_sync({}, connection=None)
