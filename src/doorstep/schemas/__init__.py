"""The shapes of all requests and responses. The API, the client and the command line share them.

This package imports only the standard library and msgspec, so that a client can be shipped without the engine.
"""
