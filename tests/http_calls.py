"""Moved to tests.support.http_calls."""

from tests.support.http_calls import *
