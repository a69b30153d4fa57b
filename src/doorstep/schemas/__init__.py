"""Every shape that crosses the wire, declared once: the API answers with it, the client returns it, the CLI prints it.

It imports the standard library and msgspec alone, so that a client can be shipped without the rest of Doorstep.
"""
