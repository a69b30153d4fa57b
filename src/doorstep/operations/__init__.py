"""What people and programs do around the engine: endpoints, events, dead letters, bulk operations, alerts, statistics."""
