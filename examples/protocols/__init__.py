"""Protocols: documents are uploaded, read, checked against their sources, reviewed by a person, and complete."""

from examples.protocols.program import app

__all__ = ["app"]
