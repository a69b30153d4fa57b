"""Webhooks: customers subscribe to event types and get signed requests."""
