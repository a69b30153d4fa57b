"""A variant of `doorstep` without group commit, as a baseline: every accepted request waits for its own commit."""

from __future__ import annotations

from doorstep.cli.main import run
from doorstep.engine import accept

accept._BATCH_MAX = accept._BATCH_MAX._replace(events=1)

if __name__ == "__main__":
    run()
