"""The only code that touches other people's networks, and other people's Python."""
