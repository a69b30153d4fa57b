"""Doorstep with a checkpoint every few pages, so that even a short recording contains many checkpoints.

python -m tests.faults.often serve --port 8080
"""

from __future__ import annotations

import sys

from doorstep.cli.main import run
from doorstep.stores.sql.sqlite import checkpoints

LOG_PAGES = 20

PROGRAM = [sys.executable, "-m", "tests.faults.often"]
"""The command that replaces `doorstep`."""

if __name__ == "__main__":
    checkpoints.LOG_PAGES = LOG_PAGES
    sys.argv[0] = "doorstep"
    run()
