"""Moved to tests.support.loop_receiver."""

from tests.support.loop_receiver import *
