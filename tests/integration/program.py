"""Moved to tests.support.program."""

from tests.support.program import *
