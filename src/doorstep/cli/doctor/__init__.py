"""`doorstep doctor`: what is looked at (`machine.py`, `installation.py`), and how it is told (`examining.py`)."""
