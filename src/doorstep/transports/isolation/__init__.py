"""Handlers in processes of their own: what kills one costs its attempt, and nothing else.

`pool.py` has the processes of one handler, `process.py` is one of them as seen from the worker, `child.py` is what
runs inside. They speak in frames (`frames.py`), and `places.py` says how a process finds its function.
"""
