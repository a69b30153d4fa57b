"""Doorstep that moves its log into the file every few pages, so that a short recording has many checkpoints in it.

python -m tests.faults.often serve --port 8080
"""

from __future__ import annotations

import sys

from doorstep.cli.main import run
from doorstep.stores.sql.sqlite import checkpoints

LOG_PAGES = 20

PROGRAM = [sys.executable, "-m", "tests.faults.often"]
"""The command that stands in for `doorstep`."""

if __name__ == "__main__":
    checkpoints.LOG_PAGES = LOG_PAGES
    sys.argv[0] = "doorstep"
    run()
