"""Things that run until told to stop. Each has `run_once`, which says when it wants to run again; one loop waits."""
