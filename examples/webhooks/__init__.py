"""Webhooks: customers subscribe to event types and get signed requests; every delivery is logged."""

from examples.webhooks.program import app

__all__ = ["app"]
