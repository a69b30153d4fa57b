"""One program for each queue. It defines the job and sends it."""
