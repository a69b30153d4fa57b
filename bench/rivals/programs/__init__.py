"""One program for each contender: its job, and how it is sent."""
