"""The pipeline of the protocols profile; each call declares it again for one test."""

from __future__ import annotations

from typing import Any

from doorstep import Gate, Pipeline, Stage


def protocols(**changes: Any) -> Pipeline:
    given: dict[str, Any] = {
        "first": "uploaded",
        "stages": [
            Stage("extracting", failed="extraction_failed"),
            Stage("grounding", failed="grounding_failed"),
            Gate("pending_review"),
        ],
        "last": "complete",
        "policy": (0, 0),
    }
    return Pipeline("protocol", **given | changes)
