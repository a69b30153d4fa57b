"""Compares the CPU use of two revisions, as black boxes: they are used only over HTTP and the command line."""
