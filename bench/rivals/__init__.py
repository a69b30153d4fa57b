"""Runs the same work on the job queues that people would use instead of Doorstep; only on request, see `measure`."""
