"""The command line. `main.py` lists the commands; the other modules implement them."""
