"""How long a test waits for an event before it gives up: a guard against hanging forever, not a performance limit.

On a machine that runs three other tests, or on a slow virtual machine, one second of work can take a minute. Tests that
measure time say so, and use tests/support/stretching.py to compute their limit.
"""

PATIENCE_SECONDS = 120.0
PATIENCE_MILLISECONDS = 1_000 * PATIENCE_SECONDS
"""The same limit in milliseconds, for browser automation."""
