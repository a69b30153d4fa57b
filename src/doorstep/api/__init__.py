"""The HTTP API. `application.py` puts it together; each other module is one group of routes or one rule of all."""
