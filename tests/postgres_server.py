"""Moved to tests.support.postgres_server."""

from tests.support.postgres_server import *
