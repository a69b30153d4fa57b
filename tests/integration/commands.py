"""Moved to tests.support.commands."""

from tests.support.commands import *
