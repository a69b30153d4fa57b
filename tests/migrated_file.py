"""Moved to tests.support.migrated_file."""

from tests.support.migrated_file import *
