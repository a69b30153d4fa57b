"""Pipelines: an entity goes from stage to stage, and each stage is a handler driven by an event.

- `plan.py`: the statuses and the allowed changes between them; no I/O.
- `transitions.py`: how an entity changes when something happens to it; no I/O. An `EntityWrite` is one transaction.
- `stage_handler.py`: the handler that runs a stage.
- `pipeline.py`: class `Pipeline`, which a program declares and calls.
"""
