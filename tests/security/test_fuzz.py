"""The API behaves as its OpenAPI document describes, for any request: schemathesis generates the requests.

All checks and phases of schemathesis run against the real process: examples, schema boundaries, random requests, and
sequences of requests that pass ids on. Requests that do not fit the document are refused before they reach a store, so
one store is enough for those. TORTURE=1 generates forty times as many requests, all of them on both stores, with a new
seed each time.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import ADMIN_KEY, Program
from tests.support.receiver import receiving

TORTURE = bool(os.environ.get("TORTURE"))
EXAMPLES = 200 if TORTURE else 3
SEED = secrets.randbelow(2**32) if TORTURE else 7
SECONDS_MAX = 3_600 if TORTURE else 600
"""Takes about 40 s on an idle machine."""
SETTINGS = f"""
[phases.stateful.generation]
max-examples = {EXAMPLES * 6}  # they are quick, and what is wrong with a state is found by nothing else
"""
EXCLUDED = (
    "positive_data_acceptance",
    "use_after_free",  # a deleted endpoint stays readable, because its dead letters refer to it
)
ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_requests_made_up_from_the_document_are_answered_as_it_says(
    request: pytest.FixtureRequest, served: Program, receivers: list[str], tmp_path: Path
) -> None:
    mode = "all" if TORTURE or request.node.callspec.id == "sqlite" else "positive"
    said = fuzz(served, receivers, mode, tmp_path)
    assert re.search(r"No issues found|\d+ generated, \d+ passed", said), said
    assert "returned only 401/403" not in said, "the fuzzer has lost its key"
    assert not [line for line in served.out if "Traceback" in line]


def fuzz(served: Program, receivers: list[str], mode: str, folder: Path) -> str:
    """The output of a schemathesis run without findings. `mode`: only requests that fit the document, or all."""
    (folder / "schemathesis.toml").write_text(SETTINGS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/openapi.json"),
            *("--header", f"X-API-Key: {ADMIN_KEY}"),
            *("--checks", "all", "--exclude-checks", ",".join(EXCLUDED)),
            *("--mode", mode, "--max-examples", str(EXAMPLES), "--seed", str(SEED), "--generation-database", "none"),
            *("--continue-on-failure", "--no-color", "--output-truncate", "false"),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.security.fuzz_hooks",
            "FUZZ_RECEIVERS": " ".join(receivers),
            "FUZZ_OWN_KEY_ID": own_key_id(served),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"seed {SEED}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def receivers() -> Iterator[list[str]]:
    """Three receivers: one accepts everything, one refuses permanently, one refuses temporarily."""
    with receiving() as content, receiving() as refusing, receiving() as busy:
        refusing.status, busy.status = 400, 503
        yield [content.url, refusing.url, busy.url]


def own_key_id(served: Program) -> str:
    keys = served.get("/v1/keys").json["keys"]
    (own,) = [key["key_id"] for key in keys if ADMIN_KEY.startswith(key["prefix"])]
    return str(own)
