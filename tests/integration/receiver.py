"""Moved to tests.support.receiver."""

from tests.support.receiver import *
