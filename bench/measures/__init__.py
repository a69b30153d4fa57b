"""One module a question; each has `measure(setting)`, which yields figures as they come."""
