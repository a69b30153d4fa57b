"""Triggers: programs send events over HTTP; receivers get them by webhook or fetch them from the inbox."""
