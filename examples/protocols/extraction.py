"""A simulated extraction service and archive of sources: `python -m examples.protocols.extraction`, or with the server.

It has every source until told otherwise. To make the extraction fail, to remove a source, and to repair both:

    curl -X PUT http://127.0.0.1:8090/extract -d 503
    curl -X PUT http://127.0.0.1:8090/sources/pump -d 404
    curl -X PUT http://127.0.0.1:8090/extract -d 200
    curl -X PUT http://127.0.0.1:8090/sources/pump -d 200
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from examples.counterpart import Answer, Counterpart, main

_SOURCE = re.compile(r"\[(\w+)\]")
_PICTURE = "\x89PNG"


class Extraction(Counterpart):
    """Counts the words of a document and finds the sources that it cites."""

    @property
    def environment(self) -> dict[str, str]:
        return {"SERVICES_URL": self.url}

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if path != "/extract":
            return Answer()
        text = json.loads(body)["text"]
        if text.startswith(_PICTURE):
            return Answer(422, {"error": "The document is a picture, not a text."})
        return Answer(200, {"words": len(text.split()), "cites": sorted(set(_SOURCE.findall(text)))})


if __name__ == "__main__":
    main(Extraction)
