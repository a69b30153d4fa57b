"""Posting: inserting into the outbox on a connection that belongs to the program, in whatever transaction it is in.

One module a family of connections; `inserting.py` finds the right one. None of them imports a library before a
connection of that library is given.
"""
