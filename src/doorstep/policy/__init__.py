"""Pure decisions: data in, data out. No clock, no chance, no I/O; time and randomness are arguments."""
