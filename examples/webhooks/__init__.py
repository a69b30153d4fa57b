"""Webhooks: customers subscribe to event types, and get signed requests until they have them."""
