"""The command line. `main.py` declares the commands; each other module does what one of them says."""
