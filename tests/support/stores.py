"""The SQL stores that a test case runs on, for each test tier."""

from __future__ import annotations

import pytest

EACH_STORE = ("sqlite", "postgres")
"""For cases that test the database: both stores in `make test`."""

EITHER_STORE = ("sqlite", pytest.param("postgres", marks=pytest.mark.full))
"""For cases that test something else: only SQLite in `make test`, PostgreSQL too in `make test-all`."""
