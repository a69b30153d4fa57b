"""Moved to tests.support.fixtures_postgres."""

from tests.support.fixtures_postgres import *
