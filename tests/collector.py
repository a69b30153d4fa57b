"""Moved to tests.support.collector."""

from tests.support.collector import *
