"""Pure decisions: functions from data to data, without I/O. The time and random numbers are passed as arguments."""
