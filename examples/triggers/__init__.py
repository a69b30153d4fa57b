"""Triggers: programs send events over HTTP; receivers get them by webhook or fetch them from the inbox."""

from examples.triggers.program import app

__all__ = ["app"]
