"""Handlers in separate processes: one that crashes fails its own attempt and nothing else.

`pool.py` keeps the processes of one handler, `child.py` runs inside each of them, `frames.py` is what they exchange and
how a process finds its function, `options.py` is what a program asks for.
"""
