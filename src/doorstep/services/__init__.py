"""Services: loops that run until they are stopped. `run_once` does one round and returns the delay before the next."""
