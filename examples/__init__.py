"""Runnable examples, one for each of the systems that Doorstep replaces: `python -m examples.triggers`."""
