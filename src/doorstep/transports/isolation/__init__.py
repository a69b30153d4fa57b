"""Handlers in separate processes: if a process crashes, only its current attempt fails.

`pool.py` manages the processes of one handler, and `child.py` runs inside each of them. `frames.py` defines the
messages between them, and finds the function that a process must import.
"""
