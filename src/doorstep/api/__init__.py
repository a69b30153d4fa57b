"""The HTTP API. `application.py` assembles it. The other modules define groups of routes, or code shared by them."""
