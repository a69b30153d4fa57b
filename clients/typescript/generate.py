"""Writes the API's description and the types that are generated from it.

python clients/typescript/generate.py           writes openapi.json, then src/schema.ts (needs npm)
python clients/typescript/generate.py --check   fails if openapi.json is not what the code says
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from doorstep.api.application import create_application
from doorstep.app import Doorstep

HERE = Path(__file__).parent
DOCUMENT = HERE / "openapi.json"


def description() -> str:
    """The OpenAPI document as it is kept beside the client: without examples and refusals, which make no types."""
    document = create_application(Doorstep("memory://")).openapi()
    return json.dumps(_without_refusals(_without_examples(document)), indent=1, sort_keys=True) + "\n"


def main() -> int:
    if "--check" in sys.argv:
        return _check()
    DOCUMENT.write_text(description())
    npm = shutil.which("npm")
    if npm is None:
        print("wrote openapi.json; src/schema.ts needs npm: run this again where there is one")
        return 1
    if not (HERE / "node_modules").exists():
        subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=HERE, check=True)
    return subprocess.run([npm, "run", "--silent", "generate"], cwd=HERE, check=False).returncode


def _without_examples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_examples(part) for name, part in value.items() if name not in ("example", "examples")}
    return [_without_examples(part) for part in value] if isinstance(value, list) else value


def _without_refusals(document: Any) -> Any:
    """Every operation names the same ones, and the client reads them all as a Problem."""
    for operations in document["paths"].values():
        for operation in operations.values():
            answers = operation["responses"]
            operation["responses"] = {status: answers[status] for status in answers if status < "400"}
    return document


def _check() -> int:
    if DOCUMENT.exists() and DOCUMENT.read_text() == description():
        return 0
    print("clients/typescript/openapi.json is not up to date; run python clients/typescript/generate.py")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
