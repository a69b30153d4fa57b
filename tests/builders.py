"""Moved to tests.support.builders."""

from tests.support.builders import *
