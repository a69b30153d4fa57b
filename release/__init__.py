"""Builds the files of a release; `make release` runs it."""
