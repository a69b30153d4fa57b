"""Moved to tests.support.patience."""

from tests.support.patience import *
