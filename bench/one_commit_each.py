"""`doorstep` with its group commit taken out: every accepted request waits for a commit of its own.

What the bench compares the real one with.
"""

from __future__ import annotations

from doorstep.cli.main import run
from doorstep.engine import accept

accept._BATCH_MAX = accept._BATCH_MAX._replace(events=1)

if __name__ == "__main__":
    run()
