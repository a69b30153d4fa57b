"""Operations for people and programs, outside the delivery engine. They cover endpoints, events, dead letters, bulk
operations, alerts and statistics."""
