"""Moved to tests.support.api."""

from tests.support.api import *
