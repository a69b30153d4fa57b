"""Compares the CPU use of two revisions, each a black box reached over HTTP and its command line alone."""
