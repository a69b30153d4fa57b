"""The operations that people and programs perform outside the engine: on endpoints, events, dead letters, bulk
operations, alerts and statistics."""
