"""The same work on the job queues that people would use instead of Doorstep; on request only, see `measure`."""
