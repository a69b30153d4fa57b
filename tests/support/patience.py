"""How long a test waits for what must come: a guard against hanging for ever, never a measurement.

A machine that is busy with three other tests, or is itself a share of a machine, can take a minute for what takes a
second. Whoever measures a time says so, and asks tests/support/stretching.py how long it may be.
"""

PATIENCE_SECONDS = 120.0
PATIENCE_MILLISECONDS = 1_000 * PATIENCE_SECONDS
"""The same, as a browser wants to hear it."""
