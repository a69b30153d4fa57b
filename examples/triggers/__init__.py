"""Triggers: other programs send events over HTTP; who wants them is called, or fetches them from the inbox."""
