"""Moved to tests.support.scene."""

from tests.support.scene import *
