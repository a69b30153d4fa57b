"""Staged work on top of the path: an entity goes from stage to stage, each a handler driven by an event (R9.4).

- `plan.py`: which statuses there are, and which may follow which: pure.
- `moves.py`: what becomes of an entity when something happens to it: pure; a `Move` is written in one transaction.
- `stage_handler.py`: what happens when a stage's event is delivered.
- `pipeline.py`: what a program declares, and the verbs it has.
"""
