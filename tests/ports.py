"""Moved to tests.support.ports."""

from tests.support.ports import *
