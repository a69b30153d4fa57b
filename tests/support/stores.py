"""Which SQL stores a case runs on, and in which tier."""

from __future__ import annotations

import pytest

EACH_STORE = ("sqlite", "postgres")
"""For cases that are about the database: both stores in `make test`."""

EITHER_STORE = ("sqlite", pytest.param("postgres", marks=pytest.mark.full))
"""For cases that are about something else: one store in `make test`, the other one in `make test-all` too."""
